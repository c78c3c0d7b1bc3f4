"""Which messages that were set aside an operator means."""

from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Table

from pillarbox.errors import InvalidRequest
from pillarbox.ops.filters import check_given_time, check_text
from pillarbox.ops.transactions import Transactions, checked_tenant

TEXTS: Final = ("consumer", "topic", "event_type", "key", "reason", "error_class", "state")
STATES: Final = ("parked", "waiting")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedFilter:
    """Messages that agree with everything that is given; times are those of being set aside.

        ParkedFilter(consumer="payments", reason="handler-failed", error_class="TimeoutError")

    Those that wait and come back by themselves are meant only by `state="waiting"`. `everything`
    says that no restriction is no mistake.
    """

    tenant_id: str | None = None
    consumer: str | None = None
    topic: str | None = None
    event_type: str | None = None
    key: str | None = None
    reason: str | None = None
    error_class: str | None = None
    state: str = "parked"
    before: datetime | None = None
    after: datetime | None = None
    everything: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot match, or cannot be meant."""
        if self.tenant_id is not None:
            checked_tenant(self.tenant_id)
        for name in TEXTS:
            check_text(name, getattr(self, name))
        if self.state not in STATES:
            raise InvalidRequest("state", f"is {self.state!r}", f"use one of {', '.join(STATES)}")
        for name in ("before", "after"):
            check_given_time(name, getattr(self, name))
        if self.before is not None and self.after is not None and self.after >= self.before:
            raise InvalidRequest("after", "is not earlier than before", "exchange the two times")

    def within(self, transactions: Transactions) -> "ParkedFilter":
        """Return this filter, narrowed to the tenant that a scoped operator works for."""
        if transactions.tenant_id is None:
            return self
        return replace(self, tenant_id=transactions.tenant(self.tenant_id, "a filter"))

    def conditions(self, table: Table) -> list[ColumnElement[bool]]:
        """Return what a row must fulfil."""
        columns = table.c
        found = [
            columns[name] == getattr(self, name)
            for name in ("tenant_id", *TEXTS)
            if getattr(self, name) is not None
        ]
        if self.before is not None:
            found.append(columns.first_at < self.before)
        if self.after is not None:
            found.append(columns.first_at >= self.after)
        return found

    def for_act(self) -> "ParkedFilter":
        """Return this filter, or refuse one that reaches everything by accident."""
        if any(name != "state" for name in self.as_json()) or self.everything:
            return self
        raise InvalidRequest(
            "filter",
            "names nothing, so it would reach every message of every tenant",
            "name a tenant, consumer, topic, type, key, reason, error class or time, or pass "
            "everything=True",
        )

    def as_json(self) -> dict[str, Any]:
        """Return what was given, for the audit."""
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in given
            if value is not None and value is not False
        }
