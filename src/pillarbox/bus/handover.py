"""The messages of one call under way, and the answers that no broker gives."""

import asyncio
from collections.abc import Sequence
from typing import Final, cast

from pillarbox.bus.outcome import PublishOutcome, Unknown

HELD_BACK: Final = Unknown("held-back", "an earlier message failed, so this one was not sent")
NO_ANSWER: Final = Unknown("no-answer", "the broker did not answer within the limit")
DISCONNECTED: Final = Unknown("disconnected", "the connection broke before the broker answered")
CLOSED: Final = Unknown("closed", "the bus was closed before the broker answered")


class Handover:
    """The messages of one call, and the answers that have come for them."""

    __slots__ = ("_answers", "deadline", "done", "missing")

    def __init__(self, count: int, deadline: float) -> None:
        self._answers: list[PublishOutcome | None] = [None] * count
        self.missing = count
        self.deadline = deadline
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answer(self, place: int, outcome: PublishOutcome) -> None:
        """Take the first answer for one message; the last one wakes the caller."""
        if self._answers[place] is None:
            self._answers[place] = outcome
            self.missing -= 1
            if not self.missing:
                self._finish()

    def end(self, rest: PublishOutcome, start: int = 0) -> None:
        """Give this answer to every message from a place on that has none."""
        for place in range(start, len(self._answers)):
            if self._answers[place] is None:
                self._answers[place] = rest
                self.missing -= 1
        if not self.missing:
            self._finish()

    def outcomes(self) -> Sequence[PublishOutcome]:
        """Return the answers, in the order of the messages, once none is missing."""
        return cast("list[PublishOutcome]", self._answers)

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
