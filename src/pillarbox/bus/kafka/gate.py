"""Which topics may be sent to, and whom a refusal concerns."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pillarbox.bus.outcome import Unavailable


@dataclass(slots=True)
class _Refusal:
    outcome: Unavailable
    serial: int
    holders: int = 0


class Gate:
    """Remember which topics are there.

    A refusal holds for every call that was made before it was known, and for as long as a call that
    was told has not returned: else a later message of a key could pass while an earlier one failed.
    None stands for the whole cluster.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._open: set[str] = set()
        self._refusals: dict[str | None, _Refusal] = {}
        self._serial = 0

    def now(self) -> int:
        """Return the moment of a call, to be compared with that of a refusal."""
        return self._serial

    def unseen(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that nobody has looked at."""
        return [topic for topic in topics if topic not in self._open]

    def admit(self, topic: str) -> None:
        """Remember that a topic is there."""
        self._open.add(topic)

    def refuse(self, outcome: Unavailable) -> None:
        """Remember that a topic, or the whole cluster, cannot take messages."""
        self._serial += 1
        self.forget(outcome.topic)
        self._refusals[outcome.topic] = _Refusal(outcome, self._serial)

    def forget(self, topic: str | None) -> None:
        """Look at a topic again before the next message."""
        if topic is not None:
            self._open.discard(topic)

    def refusals(self, topics: Iterable[str], made: int) -> dict[str, Unavailable]:
        """Return the refusals that concern a call made at this moment, by topic."""
        found = {
            topic: self._standing(topic, made) or self._standing(None, made) for topic in topics
        }
        return {topic: outcome for topic, outcome in found.items() if outcome is not None}

    @contextmanager
    def told(self, refused: Iterable[str | None]) -> Iterator[None]:
        """Keep refusals standing while a call that was told of them runs."""
        held = [self._refusals[topic] for topic in refused if topic in self._refusals]
        for refusal in held:
            refusal.holders += 1
        try:
            yield
        finally:
            for refusal in held:
                refusal.holders -= 1

    def _standing(self, topic: str | None, made: int) -> Unavailable | None:
        found = self._refusals.get(topic)
        if found is None:
            return None
        if made < found.serial or found.holders:
            return found.outcome
        del self._refusals[topic]
        return None
