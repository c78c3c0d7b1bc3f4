"""Messages in the table: those that wait for their time, and those that wait for a person.

Of the rows of a key that hold it, the first is its head. Only a head has a time at which it is due:
the rows behind it are out of the way until it goes. Whoever puts rows behind a head, or takes a head
away, holds the key's lock until the commit, so that no row is left behind a head that has gone.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Executable,
    Row,
    Select,
    String,
    Table,
    Update,
    bindparam,
    cast,
    delete,
    func,
    insert,
    null,
    select,
    text,
    true,
    union_all,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.identity import original_of, stored_text
from pillarbox.consumer.known import Known, Seen, Stored
from pillarbox.consumer.lane import InHand
from pillarbox.event.ids import IdMaker
from pillarbox.event.payload import encode_json
from pillarbox.event.shard import place_of
from pillarbox.schema.tables import inbox_parked, outbox_settings, table_in
from pillarbox.words import storable, storable_class

WAITING: Final = "waiting"
PARKED: Final = "parked"
LOCK: Final = text("SELECT pg_advisory_xact_lock(:number)")
_TOPIC_LENGTH: Final = 249
_TEXT_LENGTH: Final = 255
_COMPARED: Final = 10
"""How many rows of one id a message is compared with."""
_OF_TENANT: Final = bindparam("of_tenant", type_=String)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a message stands in the table: its state, why, and since how many attempts."""

    state: str
    reason: str
    holds_key: bool
    due_at: datetime | None = None
    attempts: int = 0
    error_class: str | None = None
    error_message: str | None = None

    def behind(self) -> "Standing":
        """Return the same behind others of its key: it is due when they have gone."""
        return replace(self, due_at=None) if self.holds_key else self

    def values(self) -> dict[str, Any]:
        """Return the columns of a row."""
        return {
            "state": self.state,
            "reason": self.reason,
            "holds_key": int(self.holds_key),
            "due_at": self.due_at,
            "attempts": self.attempts,
            "error_class": self.error_class and storable_class(self.error_class),
            "error_message": self.error_message and storable(self.error_message),
        }


def lock_number(tenant_id: str, consumer: str, key: str) -> int:
    """Return the number of the lock that whoever adds to or takes from a key's rows holds."""
    return place_of(tenant_id, f"{consumer}\0{key}").lock


def holders(table: Table, tenant_id: str, consumer: str, key: Any) -> Select[Any]:
    """Return the query for the rows that hold a key, the head first."""
    columns = table.c
    return (
        select(columns.parked_id)
        .where(columns.tenant_id == tenant_id, columns.consumer == consumer)
        .where(columns.key == key, columns.holds_key == 1)
        .order_by(columns.seq)
    )


def going_on(table: Table, tenant_id: str, consumer: str, key: str, now: datetime) -> Update:
    """Return the statement that makes a key's head due, if it waits and has no time yet."""
    columns = table.c
    head = holders(table, tenant_id, consumer, key).limit(1).scalar_subquery()
    return (
        update(table)
        .where(columns.tenant_id == tenant_id, columns.parked_id == head)
        .where(columns.state == WAITING, columns.due_at.is_(None))
        .values(due_at=now)
    )


class ParkedMessages:
    """Read and write the rows of one consumer, inside the transactions of others."""

    def __init__(self, consumer: str, new_id: IdMaker, schema: str | None = None) -> None:
        self._consumer, self._new_id, self._schema = consumer, new_id, schema
        self._look_ups: dict[tuple[str, bool], Executable] = {}
        self.table = table_in(inbox_parked, schema)

    async def look_up(
        self, session: AsyncSession, tenant_id: str, items: Collection[InHand]
    ) -> Seen:
        """Return which of these messages have rows, and which of their keys are held.

        Both by one statement: what is found of another member's rows holds up what is behind it.
        """
        keys = sorted({item.key for item in items if item.key is not None})
        ids = sorted({item.message_id for item in items})
        dialect = _dialect(session)
        asked = {"of_tenant": tenant_id, "ids": _list_of(ids, dialect)}
        if keys:
            asked["keys"] = _list_of(keys, dialect)
        query = self._look_up_query(dialect, with_keys=bool(keys))
        found = await session.execute(query, asked)
        held: set[str] = set()
        rows: list[Stored] = []
        for key, *stored in found:
            if key is None:
                rows.append(Stored(*stored))
            else:
                held.add(key)
        return Seen(held, Known(rows))

    async def lock(self, session: AsyncSession, tenant_id: str, key: str) -> None:
        """Keep others from adding to or taking from a key's rows until the commit."""
        if _dialect(session) == "postgresql":  # SQLite has one writer at a time
            await session.execute(LOCK, {"number": lock_number(tenant_id, self._consumer, key)})

    async def add(
        self, session: AsyncSession, rows: Sequence[tuple[InHand, Standing]], now: datetime
    ) -> None:
        """Insert rows in their order."""
        if not rows:
            return
        values = [
            {
                **self._described(item),
                **standing.values(),
                "first_at": item.came_at or now,
                "last_at": now,
            }
            for item, standing in rows
        ]
        if _dialect(session) == "sqlite":
            await self._number(session, values)
        await session.execute(insert(self.table), values)

    async def go_on(
        self, session: AsyncSession, tenant_id: str, key: str | None, now: datetime
    ) -> None:
        """Make the head of a key due if it is a waiting row that has no time yet; lock the key."""
        if key is None:
            return
        await self.lock(session, tenant_id, key)
        await session.execute(going_on(self.table, tenant_id, self._consumer, key, now))

    def due(
        self, now: datetime, tenant_id: str | None = None, out: Collection[UUID] = ()
    ) -> Select[Any]:
        """Return the query for the next due row that nobody has, oldest time first; none of `out`."""
        columns = self.table.c
        query = (
            select(self.table)
            .where(columns.consumer == self._consumer, columns.state == WAITING)
            .where(columns.due_at <= now)
            .order_by(columns.due_at)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        if out:
            query = query.where(columns.parked_id.not_in(list(out)))
        return query if tenant_id is None else query.where(columns.tenant_id == tenant_id)

    async def behind(
        self, session: AsyncSession, row: Row[Any], most: int, most_bytes: int
    ) -> Sequence[Row[Any]]:
        """Return rows right behind a head, all waiting, no more than so many and so large.

        Sizes are asked for first: a row may have megabytes.
        """
        columns = self.table.c
        size = func.coalesce(func.length(columns.body), 0)
        query = (
            select(columns.parked_id, columns.state, size.label("size"))
            .where(*self._of_key(row.tenant_id, row.key), columns.holds_key == 1)
            .where(columns.seq > row.seq)
            .order_by(columns.seq)
            .limit(most)
        )
        wanted, left = [], most_bytes
        for found in await session.execute(query):
            left -= found.size
            if found.state != WAITING or left < 0:
                break
            wanted.append(found.parked_id)
        if not wanted:
            return ()
        these = (columns.tenant_id == row.tenant_id, columns.parked_id.in_(wanted))
        return (await session.execute(select(self.table).where(*these).order_by(columns.seq))).all()

    async def change(self, session: AsyncSession, row: Row[Any], values: Mapping[str, Any]) -> None:
        """Change a row that is locked."""
        await session.execute(update(self.table).where(*self._this(row)).values(**values))

    async def remove(self, session: AsyncSession, rows: Sequence[Row[Any]]) -> None:
        """Delete rows of one tenant that are locked."""
        columns = self.table.c
        these = columns.parked_id.in_([row.parked_id for row in rows])
        mine = columns.tenant_id == rows[0].tenant_id
        await session.execute(delete(self.table).where(mine, these))

    def _this(self, row: Row[Any]) -> Iterable[ColumnElement[bool]]:
        columns = self.table.c
        return columns.tenant_id == row.tenant_id, columns.parked_id == row.parked_id

    def _of_key(self, tenant_id: Any, key: Any) -> Iterable[ColumnElement[bool]]:
        columns = self.table.c
        return (
            columns.tenant_id == tenant_id,
            columns.consumer == self._consumer,
            columns.key == key,
        )

    def _look_up_query(self, dialect: str, *, with_keys: bool) -> Executable:
        """Return the statement of a look-up; it stands in every batch's path, and is made once."""
        kind = dialect, with_keys
        found = self._look_ups.get(kind)
        return (
            self._look_ups.setdefault(kind, self._make_look_up(*kind)) if found is None else found
        )

    def _make_look_up(self, dialect: str, with_keys: bool) -> Executable:
        known = self._known(dialect)
        if not with_keys:
            return known
        # Asked once for each key: rows behind a head may be many, and are not looked at.
        asked = _listed("keys", dialect)
        holder = select(1).where(*self._of_key(_OF_TENANT, asked), self.table.c.holds_key == 1)
        nothing = [cast(null(), column.type) for column in self._content]
        return union_all(select(asked, *nothing).where(_each(holder).exists()), known)

    @property
    def _content(self) -> Sequence[ColumnElement[Any]]:
        columns = self.table.c
        return columns.message_id, columns.content_type, columns.body

    def _known(self, dialect: str) -> Select[Any]:
        """Return the query for some rows of messages, asked once for each of their ids.

        A producer may use one id for ever-new contents: what is not compared with all of them may be
        parked a second time, and is never lost.
        """
        columns = self.table.c
        mine = columns.tenant_id == _OF_TENANT, columns.consumer == self._consumer
        asked, no_key = _listed("ids", dialect), cast(null(), String)
        if dialect != "postgresql":
            theirs = (columns.tenant_id == _OF_TENANT) & columns.parked_id.in_(self._some_of(asked))
            joined = asked.table.join(self.table, theirs)
            return select(no_key, *self._content).select_from(joined)
        # The limit also has it asked for each id, as `_each` has.
        these = select(*self._content).where(*mine, columns.message_id == asked)
        found = these.limit(_COMPARED).lateral()
        return select(no_key, *found.c).select_from(asked.table.join(found, true()))

    def _some_of(self, message_id: ColumnElement[str]) -> Select[Any]:
        columns = self.table.alias("some").c
        mine = columns.tenant_id == _OF_TENANT, columns.consumer == self._consumer
        some = select(columns.parked_id).where(*mine, columns.message_id == message_id)
        return some.limit(_COMPARED).correlate(message_id.table)

    async def _number(self, session: AsyncSession, values: list[dict[str, Any]]) -> None:
        """Draw numbers where the database has no sequences."""
        settings: Table = table_in(outbox_settings, self._schema)
        drawn = await session.scalar(
            update(settings)
            .values(last_seq=settings.c.last_seq + len(values))
            .returning(settings.c.last_seq)
        )
        for number, row in enumerate(values, start=drawn - len(values) + 1):
            row["seq"] = number

    def _described(self, item: InHand) -> dict[str, Any]:
        message, envelope = item.delivery.message, item.envelope
        texts = {
            "message_id": item.message_id,
            "topic": stored_text(message.topic, _TOPIC_LENGTH),
            "key": item.key if item.key is not None else stored_text(message.key, _TEXT_LENGTH),
            "content_type": stored_text(message.content_type, _TEXT_LENGTH),
        }
        return {
            **texts,
            "original": original_of(message, texts),
            "tenant_id": item.tenant_id,
            "parked_id": self._new_id(),
            "consumer": self._consumer,
            "event_type": envelope and stored_text(envelope.event_type, _TEXT_LENGTH),
            "source": envelope and stored_text(envelope.source, _TEXT_LENGTH),
            "position": f"{item.delivery.partition} {item.delivery.position}".strip(),
            "headers": dict(message.headers),
            "body": message.body,
        }


def _each(query: Select[Any]) -> Select[Any]:
    """Return a query that is asked for each row around it, by an index.

    PostgreSQL would join it otherwise, and then, for a hundred rows among ten thousands, reads the
    whole table.
    """
    return query.offset(0)


def _listed(name: str, dialect: str) -> ColumnElement[str]:
    """Return the column of a list that is one parameter, whatever its length."""
    if dialect == "postgresql":
        given = bindparam(name, type_=ARRAY(String))
        listed = func.unnest(given).table_valued("value").render_derived()
    else:
        listed = func.json_each(bindparam(name, type_=String)).table_valued("value")
    found: ColumnElement[str] = listed.c.value
    return found


def _list_of(values: list[str], dialect: str) -> list[str] | str:
    """Return the parameter of such a list."""
    return values if dialect == "postgresql" else encode_json(values)


def _dialect(session: AsyncSession) -> str:
    return session.sync_session.get_bind().dialect.name
