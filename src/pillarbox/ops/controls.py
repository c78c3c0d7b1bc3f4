"""Pausing and slowing down: rows that projectors look at, `*` standing for all."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from pillarbox.errors import InvalidRequest, TenantMismatch
from pillarbox.ops.act import Desk, Done
from pillarbox.ops.audit import ALL, AuditEntry
from pillarbox.ops.transactions import checked_tenant
from pillarbox.schema.tables import outbox_control
from pillarbox.schema.types import DatabaseTime

_TOPIC_LENGTH: Final = 249
_LARGEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ControlChange:
    """What is to be paused, resumed or limited, and why."""

    action: str
    tenant_id: str
    topic: str
    reason: str
    values: dict[str, Any]


async def change_control(desk: Desk, change: ControlChange) -> Done:
    """Write a control with its audit; `affected` is 0 when it stood like that already."""
    done = await desk.transactions.write(partial(_change, desk, change))
    desk.wake()
    return done


def control_of(desk: Desk, tenant_id: str | None, topic: str | None) -> tuple[str, str]:
    """Return the row that a tenant, a topic or a tenant's topic is controlled by."""
    scope = desk.transactions.tenant_id
    tenant = tenant_id if tenant_id is not None else scope
    if tenant is None and topic is None:
        raise InvalidRequest("control", "names nothing", "name a tenant, a topic or both")
    if tenant is not None:
        checked_tenant(tenant)
        if scope not in (None, tenant):
            raise TenantMismatch("a control", tenant, str(scope))
    return tenant or ALL, _checked_topic(topic)


def checked_rate(events_per_second: int | None) -> int | None:
    """Return a limit, or raise `InvalidRequest`."""
    if events_per_second is None:
        return None
    if type(events_per_second) is not int or not 1 <= events_per_second <= _LARGEST:
        raise InvalidRequest(
            "events_per_second",
            f"is {events_per_second!r}",
            "use a whole number from 1, pause to stop, or None for no limit",
        )
    return events_per_second


def _checked_topic(topic: str | None) -> str:
    if topic is None:
        return ALL
    if not topic.strip() or topic == ALL:
        raise InvalidRequest("topic", "is no topic", "leave it out for all topics of a tenant")
    if len(topic) > _TOPIC_LENGTH or "\x00" in topic:
        raise InvalidRequest("topic", "is longer than any topic", "check it for a typing error")
    return topic


def _change(desk: Desk, change: ControlChange, connection: Connection) -> Done:
    table = desk.transactions.table(outbox_control)
    place = {"tenant_id": change.tenant_id, "topic": change.topic}
    changed = _differs(connection, table, place, change.values)
    if changed:
        connection.execute(_upsert(connection, table, place, change.values))
        connection.execute(
            delete(table).where(
                *(table.c[name] == value for name, value in place.items()),
                table.c.paused == 0,
                table.c.events_per_second.is_(None),
            )
        )
    audit_id = desk.new_id()
    AuditEntry(
        change.tenant_id,
        audit_id,
        desk.actor,
        change.action,
        change.reason,
        place | change.values,
        int(changed),
    ).write(connection, desk.schema)
    desk.notify(connection)
    return Done(change.action, audit_id, int(changed))


def _differs(
    connection: Connection, table: Table, place: dict[str, str], values: dict[str, Any]
) -> bool:
    query = (
        select(table.c.paused, table.c.events_per_second)
        .where(*(table.c[name] == value for name, value in place.items()))
        .with_for_update()
    )
    row = connection.execute(query).mappings().one_or_none()
    now = {"paused": 0, "events_per_second": None} if row is None else dict(row)
    return now | values != now


def _upsert(
    connection: Connection, table: Table, place: dict[str, str], values: dict[str, Any]
) -> Any:
    changed = values | {"changed_at": DatabaseTime()}
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return (
        insert(table)
        .values(**place, **changed)
        .on_conflict_do_update(index_elements=list(place), set_=changed)
    )
