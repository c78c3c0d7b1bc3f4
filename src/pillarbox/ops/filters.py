"""Which events an operator means."""

from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, Table

from pillarbox.errors import InvalidEvent, InvalidRequest
from pillarbox.event.rules import check_time
from pillarbox.ops.transactions import Transactions, checked_tenant
from pillarbox.outbox.release import troubled, undecided

TEXTS: Final = ("topic", "event_type", "key", "error_class")
_LONGEST: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Events that agree with everything that is given; times are those of recording.

        EventFilter(tenant_id="acme", topic="orders", error_class="message-too-large")

    `everything` says that no restriction is no mistake.
    """

    tenant_id: str | None = None
    topic: str | None = None
    event_type: str | None = None
    key: str | None = None
    error_class: str | None = None
    before: datetime | None = None
    after: datetime | None = None
    everything: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot match, or cannot be meant."""
        if self.tenant_id is not None:
            checked_tenant(self.tenant_id)
        for name in TEXTS:
            check_text(name, getattr(self, name))
        for name in ("before", "after"):
            check_given_time(name, getattr(self, name))
        if self.before is not None and self.after is not None and self.after >= self.before:
            raise InvalidRequest("after", "is not earlier than before", "exchange the two times")

    def within(self, transactions: Transactions) -> "EventFilter":
        """Return this filter, narrowed to the tenant that a scoped operator works for."""
        if transactions.tenant_id is None:
            return self
        return replace(self, tenant_id=transactions.tenant(self.tenant_id, "a filter"))

    def conditions(self, table: FromClause) -> list[ColumnElement[bool]]:
        """Return what a row must fulfil."""
        columns = table.c
        found = [
            columns[name] == getattr(self, name)
            for name in ("tenant_id", *TEXTS)
            if getattr(self, name) is not None
        ]
        if self.before is not None:
            found.append(columns.created_at < self.before)
        if self.after is not None:
            found.append(columns.created_at >= self.after)
        return found

    def acted_on(self, table: Table) -> list[ColumnElement[bool]]:
        """Return what a row must fulfil for an act to reach it.

        Skipped and expired events are decided about: an act reaches them only if the filter names
        their error class.
        """
        found = [troubled(table), *self.conditions(table)]
        return found if self.error_class is not None else [*found, undecided(table)]

    def for_act(self) -> "EventFilter":
        """Return this filter, or refuse one that reaches everything by accident."""
        given = (getattr(self, field.name) for field in fields(self))
        if any(value is not None and value is not False for value in given):
            return self
        raise InvalidRequest(
            "filter",
            "names nothing, so it would reach every event of every tenant",
            "name a tenant, topic, type, key, error class or time, or pass everything=True",
        )

    def as_json(self) -> dict[str, Any]:
        """Return what was given, for the audit."""
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in given
            if value is not None and value is not False
        }


def check_text(name: str, value: str | None) -> None:
    """Refuse a text that no column holds."""
    if value is None:
        return
    if not value.strip():
        raise InvalidRequest(name, "is empty", "leave it out, or give a text")
    if len(value) > _LONGEST or "\x00" in value:
        raise InvalidRequest(name, "is longer than any stored one", "check it for a typing error")


def check_given_time(name: str, value: datetime | None) -> None:
    """Refuse a time that cannot be compared."""
    if value is None:
        return
    try:
        check_time(name, value)
    except InvalidEvent as error:
        raise InvalidRequest(error.field, error.problem, error.remedy) from None
