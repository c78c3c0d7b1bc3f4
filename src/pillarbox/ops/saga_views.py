"""What reading sagas returns: plain values for people, tables and gauges."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Table

from pillarbox.errors import InvalidRequest, TenantMismatch
from pillarbox.measures import Sample
from pillarbox.ops.transactions import Transactions, checked_tenant
from pillarbox.saga.drawing import Drawing
from pillarbox.saga.machine import ENDED, OPEN, State


@dataclass(frozen=True, slots=True)
class SagaFilter:
    """Which sagas: by name, state, tenant; nothing means all that have not ended."""

    name: str | None = None
    state: str | None = None
    tenant_id: str | None = None

    def __post_init__(self) -> None:
        """Refuse a state that no saga is ever in."""
        if self.state is not None and self.state not in State.__members__:
            names = ", ".join(State.__members__)
            raise InvalidRequest("state", f"is {self.state!r}", f"use one of {names}")

    def within(self, at: Transactions) -> "SagaFilter":
        """Return the same inside an operator's tenant."""
        if self.tenant_id is not None:
            checked_tenant(self.tenant_id)
        if at.tenant_id is None:
            return self
        if self.tenant_id not in (None, at.tenant_id):
            raise TenantMismatch("a filter", str(self.tenant_id), at.tenant_id)
        return replace(self, tenant_id=at.tenant_id)

    def conditions(self, table: Table) -> Iterator[ColumnElement[bool]]:
        """Yield what a row must fulfil, so that the partial index serves what has not ended."""
        columns = table.c
        if self.tenant_id is not None:
            yield columns.tenant_id == self.tenant_id
        if self.name is not None:
            yield columns.name == self.name
        if self.state is not None:
            yield columns.state == self.state
        if self.state not in ENDED:
            yield columns.finished_at.is_(None)


@dataclass(frozen=True, slots=True)
class SagaView:
    """One saga as a list shows it."""

    tenant_id: str
    saga_id: UUID
    name: str
    version: int
    state: str
    step: str | None
    part: str | None
    tries: int
    failures: int
    wish: str | None
    cause_step: str | None
    cause: str | None
    start_id: str
    started_at: datetime
    changed_at: datetime
    finished_at: datetime | None
    due_at: datetime | None
    error_class: str | None
    error_message: str | None

    @property
    def waits_for(self) -> str | None:
        """What the saga waits for, in words."""
        if self.step is None:
            return None
        what = f"the reply to {self.step}" if self.part == "do" else f"{self.step} to be undone"
        times = "once" if self.tries == 1 else f"{self.tries} times"
        return f"{what}, sent {times}"


@dataclass(frozen=True, slots=True)
class SagaStep:
    """A half of a step that was begun."""

    step: str
    part: str
    outcome: str | None
    messages: tuple[str, ...]
    reply_id: str | None
    reply_type: str | None
    sent_at: datetime
    ended_at: datetime | None

    @classmethod
    def of(cls, row: Row[Any]) -> "SagaStep":
        """Make one out of its row."""
        return cls(**{**_values(cls, row), "messages": tuple(row.messages)})


@dataclass(frozen=True, slots=True)
class StrayReply:
    """A reply that did nothing, and why."""

    message_id: str
    event_type: str
    verdict: str
    step: str | None
    part: str | None
    received_at: datetime

    @classmethod
    def of(cls, row: Row[Any]) -> "StrayReply":
        """Make one out of its row."""
        return cls(**_values(cls, row))


@dataclass(frozen=True, slots=True)
class SagaDetails:
    """One saga: the names of its steps, those that were begun, and replies that did nothing."""

    saga: SagaView
    step_names: tuple[str, ...]
    steps: tuple[SagaStep, ...]
    strays: tuple[StrayReply, ...]

    @property
    def drawing(self) -> Drawing:
        """How far it is, to be drawn as text or as Mermaid."""
        found = self.saga
        state = (
            found.state
            if found.cause is None
            else f"{found.state}, {found.cause_step} {found.cause}"
        )
        return Drawing(
            f"{found.name} {found.version} {found.saga_id}",
            state,
            self.step_names,
            {(each.step, each.part): each.outcome for each in self.steps},
        )


def seen(row: Row[Any]) -> SagaView:
    """Make a view out of a saga's row."""
    return SagaView(**_values(SagaView, row))


def saga_gauges(running: dict[tuple[str, str], int]) -> tuple[Sample, ...]:
    """Return counts of open sagas under their name; a saga that has some has every state."""
    names = sorted({name for name, _ in running})
    return tuple(
        Sample(
            _RUNNING,
            "gauge",
            running.get((name, state), 0),
            (("saga", name), ("state", state.lower())),
        )
        for name in names
        for state in OPEN
    )


_RUNNING: Final = "pillarbox_saga_running"


def _values(kind: Any, row: Row[Any]) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(kind)}
