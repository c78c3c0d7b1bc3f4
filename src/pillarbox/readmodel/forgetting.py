"""Cached rows are removed after the commit of what changed them, by whoever notices."""

import logging
from typing import Final, NamedTuple

from pillarbox.readmodel.checkpoint import EVERYTHING, Checkpoints, Generation, Touched
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.position import Position

log = logging.getLogger("pillarbox.readmodel")

# Beyond this many rows it is cheaper to let all copies of the model go.
MOST: Final = 10_000


class _List(NamedTuple):
    """The rows in a model's row, and how far the model was with whoever left them there.

    Two batches often change the same rows: the rows alone do not tell one from the other. A held key
    that is tried again does not move the position, and counts its events.
    """

    position: Position
    events: int
    rows: tuple[tuple[str, str], ...]


class Forgetting:
    """Know which cached rows of a model are still to be removed.

    The rows of the last batch stand in the model's own row, so that another process removes them when
    the one that committed the batch has died. So does `EVERYTHING`, after a switch and instead of too
    many rows, until the batch after the removal.
    """

    def __init__(self, model: str, parts: Parts) -> None:
        self._model, self._parts = model, parts
        self._rows: set[tuple[str, str]] = set()
        self._seen: _List | None = None
        self._listed: _List | None = None
        self._generation: int | None = None

    def notice(self, at: Generation) -> None:
        """Look at a model's row as it was before a batch: somebody else may have written it."""
        if self._parts.cache is None:
            return
        found, self._listed = _List(at.position, at.events, at.touched), None
        if found != self._seen:
            self._rows |= set(at.touched)
            self._seen = found
        if self._generation not in (None, at.generation):
            self._rows.add(EVERYTHING)
        self._generation = at.generation

    def listed(
        self, at: Generation, position: Position, events: int, written: set[tuple[str, str]]
    ) -> Touched:
        """Return what a transaction leaves in the model's row: its own rows, and those still to do.

        It moves the generation to the position, and applies so many events. Without a cache what
        others have left there is left to them.
        """
        known = set(at.touched) if self._parts.cache is None else self._rows | written
        rows = sorted(_shortened(known))
        self._listed = _List(position, at.events + events, tuple(rows))
        return [list(row) for row in rows]

    def add(self, written: set[tuple[str, str]]) -> None:
        """Take in the rows of a transaction that is committed.

        Its list in the model's row is no news from now on, and not before: when the answer to a commit is
        lost, only the list tells which rows it changed.
        """
        if self._parts.cache is not None:
            self._rows |= written
            self._seen = self._listed or self._seen

    async def forget(self) -> bool:
        """Remove what is to be removed; what the cache does not take now is removed later.

        Return whether nothing is left.
        """
        cache, rows = self._parts.cache, _shortened(self._rows)
        if cache is None or not rows:
            return not rows
        try:
            if EVERYTHING in rows:
                await cache.forget_all(self._model)
            else:
                await cache.forget(self._model, sorted(rows))
        except Exception as error:  # noqa: BLE001 - a cache of any kind; the model goes on without it
            name = type(error).__name__
            log.warning("cache_away", extra={"model": self._model, "error_class": name})
            self._parts.observer.cache_away(error)
            return False
        self._rows = set()
        return True

    async def forget_everything(self) -> bool:
        """Remove all copies of the model, now or later; return whether they are gone."""
        self._rows.add(EVERYTHING)
        return await self.forget()

    async def settle(self, at: Generation) -> None:
        """Remove all copies if a generation that lists no rows asks for it, and note that it is done."""
        if EVERYTHING in at.touched and await self.forget_everything():
            async with self._parts.transactions.begin(None) as session:
                await Checkpoints(self._parts.schema).forgotten(session, at)


def _shortened(rows: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return what stands for these rows: themselves, or everything."""
    return {EVERYTHING} if EVERYTHING in rows or len(rows) > MOST else rows
