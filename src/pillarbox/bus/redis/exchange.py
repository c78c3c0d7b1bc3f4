"""The messages of one call and their answers, by place, over one connection."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from pillarbox.bus.handover import DISCONNECTED
from pillarbox.bus.outcome import ACCEPTED, PublishOutcome, Refused
from pillarbox.bus.redis.connection import Connection
from pillarbox.bus.redis.entries import Entries
from pillarbox.bus.redis.outcomes import (
    is_worn_out,
    not_replicated,
    outcome_of,
    replicas_missing,
)
from pillarbox.event.envelope import MessageEnvelope

_LOOK_MILLISECONDS: Final = 100
_WAIT_BY: Final = 0.8  # of the time that is left, so that the answer comes within it


class Exchange:
    """Send a batch, and keep what has been answered when something breaks."""

    def __init__(
        self, batch: Sequence[MessageEnvelope], entries: Entries, replicas: int, deadline: float
    ) -> None:
        self._batch = batch
        self._entries = entries
        self._replicas = replicas
        self._deadline = deadline
        self._outcomes: list[PublishOutcome | None] = [None] * len(batch)
        self._sent: list[int] = []
        self._answered = 0
        self._replicated = not replicas
        self._connection: Connection | None = None

    @property
    def begun(self) -> bool:
        """Whether a message may have reached the server."""
        return self._connection is not None

    async def run(self, connection: Connection) -> None:
        """Send the messages and take the answers; raise when the connection breaks."""
        if self._replicas and not await self._replicas_answer(connection):
            return
        self._connection = connection
        await connection.exchange(self._commands(connection.bulk_limit), self._take)

    def outcomes(self, rest: PublishOutcome | None = None) -> list[PublishOutcome]:
        """Return the answers; messages without one get `rest`, or what the connection says."""
        if rest is None:
            rest = DISCONNECTED if self._connection is None else self._connection.end_says
        found = [rest if outcome is None else outcome for outcome in self._outcomes]
        if self._replicated:
            return found
        alone = not_replicated(self._replicas)
        return [alone if outcome is ACCEPTED else outcome for outcome in found]

    async def _replicas_answer(self, connection: Connection) -> bool:
        # While too few replicas follow, each new attempt would only store one more copy.
        found: list[bytes] = []
        await connection.exchange([_wait(self._replicas, _LOOK_MILLISECONDS)], found.append)
        count = _counted(found[0])
        if count is not None and count >= self._replicas:
            return True
        problem = (
            outcome_of(found[0], None) if count is None else replicas_missing(count, self._replicas)
        )
        self._outcomes = [problem] * len(self._batch)
        return False

    def _commands(self, bulk_limit: int) -> Iterator[bytes]:
        """Write the commands as the socket takes them, and note whose they are."""
        for place, message in enumerate(self._batch):
            command = self._entries.command(message, bulk_limit)
            if isinstance(command, Refused):
                self._outcomes[place] = command
            else:
                self._sent.append(place)
                yield command
        if self._replicas:
            left = self._deadline - asyncio.get_running_loop().time()
            # None at all would mean for ever.
            yield _wait(self._replicas, max(1, int(left * _WAIT_BY * 1000)))

    def _take(self, answer: bytes) -> None:
        if self._answered == len(self._sent):
            self._replicated = (_counted(answer) or 0) >= self._replicas
            return
        place = self._sent[self._answered]
        self._answered += 1
        outcome = outcome_of(answer, self._batch[place].topic)
        self._outcomes[place] = outcome
        if outcome is not ACCEPTED and self._connection is not None:
            self._connection.worn_out |= is_worn_out(outcome)


def _wait(replicas: int, milliseconds: int) -> bytes:
    return b"WAIT %d %d\r\n" % (replicas, milliseconds)


def _counted(answer: bytes) -> int | None:
    return int(answer[1:]) if answer[:1] == b":" else None
