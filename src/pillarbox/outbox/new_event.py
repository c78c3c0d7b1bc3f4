"""What a caller says of an event to record."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypedDict
from uuid import UUID

Key = str | int | UUID


class JsonText(str):
    """JSON that is encoded already; it is checked, stored and sent as it is written."""

    __slots__ = ()


class _Unset:
    """Tell "not given" from None."""


UNSET: Final = _Unset()


class EventOptions(TypedDict, total=False):
    """What may be said of an event that is recorded by hand."""

    topic: str | None
    payload: Any
    key: Key | None
    event_type: str | None
    event_id: UUID | str | None
    aggregate_type: str | None
    aggregate_id: Key | None
    aggregate_version: int | None
    event_number: int | None
    routing_key: str | None
    headers: Mapping[str, str] | None
    content_type: str | None
    schema_id: str | None
    schema_version: int | None
    occurred_at: datetime | None
    deliver_at: datetime | None
    expires_at: datetime | None
    tombstone: bool


@dataclass(slots=True, kw_only=True)
class NewEvent:
    """An event to record: the arguments of `add`, as a value for `add_many`."""

    event: object = None
    topic: str | None = None
    payload: Any = UNSET
    key: Key | None = None
    event_type: str | None = None
    event_id: UUID | str | None = None
    aggregate_type: str | None = None
    aggregate_id: Key | None = None
    aggregate_version: int | None = None
    event_number: int | None = None
    routing_key: str | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None
    schema_id: str | None = None
    schema_version: int | None = None
    occurred_at: datetime | None = None
    deliver_at: datetime | None = None
    expires_at: datetime | None = None
    tombstone: bool = False
