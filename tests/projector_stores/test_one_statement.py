"""A batch is settled by one statement, however many events it has, on connections of the projector's own."""

from typing import Any
from uuid import uuid4

import pytest
from psycopg import AsyncConnection, AsyncCursor

from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.postgres.store import PostgresStore
from pillarbox.projector.scope import ALL
from pillarbox.projector.store import Member
from tests.projector_stores.rig import Owner, Rig


class Told(AsyncCursor[Any]):
    """Notes what is sent to the server."""

    statements: list[str] = []  # noqa: RUF012 - one list for all cursors of the test

    async def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        self.statements.append(str(query))
        return await super().execute(query, params, **options)


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
@pytest.mark.parametrize("tenants", [1, 7])
async def test_a_thousand_events_are_settled_by_one_statement(rig: Rig, tenants: int) -> None:
    for tenant in range(tenants):
        first = 1 + tenant * 1000 // tenants
        last = (tenant + 1) * 1000 // tenants
        await rig.record(*range(first, last + 1), tenant_id=f"tenant-{tenant}")
    dsn = rig.database.url.set(drivername="postgresql").render_as_string(hide_password=False)

    async def connect() -> AsyncConnection[Any]:
        return await AsyncConnection.connect(dsn, autocommit=True, cursor_factory=Told)

    member_id = uuid4()
    store = PostgresStore(
        connect,
        config=OutboxProjectorConfig(batch_size=2_000),
        scope=ALL,
        member_id=member_id,
        source="shop",
        schema=None,
        shards=64,
    )
    async with store:
        await store.join(Member(member_id, "shop", "host", 1, "0"))
        owner = Owner(store, member_id)
        await owner.keep()
        events = await owner.claim(2_000)
        Told.statements.clear()

        settled = await owner.settle(sent=events)

    assert len(events) == 1_000
    assert not settled.lost
    assert len(Told.statements) == 1, Told.statements
    assert set((await rig.states()).values()) == {"SENT"}
