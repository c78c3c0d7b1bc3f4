"""Trace what a consumer does, and kill or freeze this process at a named point."""

import asyncio
import os
import signal
from datetime import timedelta
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox.consumer.context import Context
from pillarbox.consumer.observer import Observer
from pillarbox.consumer.verdict import Outcome
from tests.faults.points import FailPoint
from tests.faults.trace import Trace


class Saboteur(Observer):
    """Hear of each step; `number` is the signal that is sent at the fail point."""

    def __init__(self, trace: Trace, fail_point: FailPoint | None, number: signal.Signals) -> None:
        self._trace, self._fail_point, self._number = trace, fail_point, number
        self._left = 0 if fail_point is None else fail_point.times
        self._handled = self._booked = False

    def watch(self, engine: AsyncEngine) -> None:
        """Hear of commits before they are sent."""
        event.listen(engine.sync_engine, "commit", self._committing)

    def called(self, context: Context) -> None:
        """A handler has begun."""
        place = (context.consumer, context.tenant_id, context.envelope.event_id)
        self._trace.note("called", message=place, attempt=context.attempt)

    def reach(self, name: str) -> None:
        """Come to a point."""
        point = self._fail_point
        if point is None or point.name != name or self._left == 0:
            return
        self._left -= 1
        if self._left == 0 and point.delay:
            asyncio.get_running_loop().call_later(point.delay, self._strike)
        elif self._left == 0:
            self._strike()

    def received(self, messages: int) -> None:
        self._trace.note("received", messages=messages)
        self.reach("received")

    def beginning(self, messages: int) -> None:
        self._trace.note("beginning", messages=messages)
        self.reach("beginning")

    def handled(self, event_type: str, took: timedelta) -> None:
        del event_type, took
        self._handled = True
        self.reach("handled")

    def committed(self, messages: int) -> None:
        self._trace.note("committed", messages=messages)
        self.reach("committed")
        if self._booked:
            self.reach("frozen")

    def ended(self, outcome: Outcome, messages: int) -> None:
        self._trace.note("ended", outcome=outcome, messages=messages)
        self._book(outcome)
        if outcome == "waiting":
            self.reach("set-aside")

    def acknowledged(self, messages: int) -> None:
        self._trace.note("acknowledged", messages=messages)
        self.reach("acknowledged")
        self.reach("after-ack")

    def returned(self, outcome: Outcome) -> None:
        self._trace.note("returned", outcome=outcome)
        self._book(outcome)

    def revoked(self, messages: int) -> None:
        self._trace.note("revoked", messages=messages)

    def database_away(self, error: Exception) -> None:
        self._trace.note("database-away", error=str(error)[:200])

    def _book(self, outcome: Outcome) -> None:
        # Straight from the broker or back from the table: an effect is committed either way.
        self._booked = self._booked or outcome == "new"

    def _committing(self, connection: Any) -> None:
        del connection
        if self._handled:  # else it is one of the consumer's own small ones
            self._handled = False
            self.reach("mid-commit")

    def _strike(self) -> None:
        point = self._fail_point
        self._trace.note("struck", point=point and point.name)
        os.kill(os.getpid(), self._number)
