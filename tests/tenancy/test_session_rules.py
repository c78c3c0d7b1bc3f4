"""What a session refuses when tenancy is on, before the database is asked."""

import gc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import event, select, text, update
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, aliased, joinedload, selectinload

from pillarbox import collect_events, tenant
from pillarbox.errors import TenantMismatch, TenantRequired, UnitOfWorkError
from tests.tenancy.shop import ACME, GLOBEX, Base, Line, Order
from tests.tenancy.wall import REQUIRED

Sessions = async_sessionmaker[AsyncSession]
INITECH = "initech"


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """SQLite has no row-level security: what is refused here, the session refuses."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with AsyncSession(engine) as session, session.begin():
        session.add_all(
            [
                Order(id=1, tenant_id=ACME),
                Order(id=2, tenant_id=GLOBEX, name="secret"),
                Line(id=1, tenant_id=ACME, order_id=1),
                Line(id=3, tenant_id=ACME, order_id=2),
                Line(id=4, tenant_id=GLOBEX, order_id=1),
            ]
        )
    yield engine
    await engine.dispose()


@pytest.fixture
def sessions(engine: AsyncEngine) -> Sessions:
    made = async_sessionmaker(engine, expire_on_commit=False)
    collect_events(made, settings=REQUIRED)
    return made


async def loaded(session: AsyncSession) -> Order:
    """Hold acme's order, with its transaction ended."""
    with tenant(ACME):
        order = await session.get_one(Order, 1)
        await session.commit()
    return order


@pytest.mark.parametrize(
    "read",
    [
        lambda s: s.get(Order, 1),
        lambda s: s.get(Order, 2),
        lambda s: s.merge(Order(id=1)),
        lambda s: s.scalars(select(Order)).all(),
        lambda s: s.execute(text("SELECT 1")),
        lambda s: s.connection(),
        lambda s: s.refresh(next(iter(s))),
        lambda s: s.begin_nested().session.connection(),
    ],
    ids=["held", "other", "merge", "select", "text", "connection", "refresh", "savepoint"],
)
async def test_a_session_that_holds_objects_serves_no_other_tenant(
    sessions: Sessions, read: object
) -> None:
    async with sessions() as session:
        order = await loaded(session)

        with tenant(GLOBEX), pytest.raises(TenantMismatch, match="with objects"):
            await session.run_sync(read)  # type: ignore[arg-type]  # a lambda's type is not known
        assert order in session


async def test_a_held_object_is_not_handed_out_without_any_tenant(sessions: Sessions) -> None:
    async with sessions() as session:
        order = await loaded(session)

        with pytest.raises(TenantRequired):
            await session.get(Order, order.id)


async def test_an_expired_object_loads_nothing_for_another_tenant(sessions: Sessions) -> None:
    async with sessions() as session:
        order = await loaded(session)
        session.expire(order)

        with tenant(GLOBEX), pytest.raises(TenantMismatch):
            await session.run_sync(lambda _: order.name)


async def test_a_relationship_loads_nothing_for_another_tenant(sessions: Sessions) -> None:
    async with sessions() as session:
        order = await loaded(session)

        with tenant(GLOBEX), pytest.raises(TenantMismatch):
            await session.run_sync(lambda _: order.lines)


async def test_a_running_transaction_serves_no_other_tenant(sessions: Sessions) -> None:
    async with sessions() as session:
        with tenant(ACME):
            await session.execute(text("SELECT 1"))

        with tenant(GLOBEX), pytest.raises(TenantMismatch, match="in a transaction"):
            await session.scalars(select(Order))


async def test_a_session_that_holds_nothing_may_serve_another_tenant(sessions: Sessions) -> None:
    found = {}

    async with sessions() as session:
        for name in (ACME, GLOBEX, ACME):
            with tenant(name):
                found[name] = (await session.scalars(select(Order.id))).all()
                await session.rollback()
            gc.collect()

    assert found == {ACME: [1], GLOBEX: [2]}


async def test_a_transaction_refused_for_want_of_a_tenant_begins_anew_after_a_rollback(
    sessions: Sessions,
) -> None:
    async with sessions() as session:
        with pytest.raises(TenantRequired):
            await session.connection()
        with tenant(ACME):
            with pytest.raises(UnitOfWorkError, match="roll it back"):
                await session.scalars(select(Order))
            await session.rollback()

            assert (await session.scalars(select(Order.id))).all() == [1]


async def test_a_flush_fills_a_missing_tenant(sessions: Sessions) -> None:
    async with sessions() as session:
        order = Order(id=7, lines=[Line(id=7)])
        session.add(order)  # outside of any context
        with tenant(INITECH):
            await session.commit()

    assert [order.tenant_id, order.lines[0].tenant_id] == [INITECH, INITECH]


async def test_an_object_stays_with_the_tenant_it_was_added_for(sessions: Sessions) -> None:
    async with sessions() as session:
        with tenant(ACME):
            session.add(Order(id=7))

        with tenant(GLOBEX), pytest.raises(TenantMismatch, match="Order"):
            await session.commit()


async def test_an_object_of_another_tenant_is_refused_when_it_is_added(sessions: Sessions) -> None:
    async with sessions() as session:
        foreign = await loaded(session)

    async with sessions() as session:
        with tenant(GLOBEX), pytest.raises(TenantMismatch, match="Order"):
            session.add(foreign)
        with tenant(GLOBEX), pytest.raises(TenantMismatch, match="Order"):
            session.add(Order(id=7, tenant_id=ACME))
        assert not session.new
        assert foreign not in session


async def test_an_object_of_another_tenant_is_refused_when_it_is_flushed(
    sessions: Sessions,
) -> None:
    async with sessions() as session:
        session.add(Order(id=7, tenant_id=ACME))

        with tenant(GLOBEX), pytest.raises(TenantMismatch, match="Order"):
            await session.flush()


@pytest.mark.parametrize("expired", [False, True])
async def test_a_row_changes_its_tenant_neither_to_nor_from_another(
    sessions: Sessions, engine: AsyncEngine, expired: bool
) -> None:
    async with sessions() as session:
        with tenant(ACME):
            given = await session.get_one(Order, 1)
            given.tenant_id = GLOBEX
            with pytest.raises(TenantMismatch):
                await session.commit()

    async with sessions() as session:
        async with AsyncSession(engine) as plain:
            taken = await plain.get_one(Order, 1)
            if expired:
                plain.expire(taken)
                await plain.run_sync(lambda _: setattr(taken, "tenant_id", GLOBEX))
            else:
                taken.tenant_id = GLOBEX
        with tenant(GLOBEX), pytest.raises(TenantMismatch):
            session.add(taken)


async def test_an_object_of_another_tenant_is_not_deleted(
    sessions: Sessions, engine: AsyncEngine
) -> None:
    async with AsyncSession(engine) as plain:
        foreign = await plain.get_one(Order, 1)

    async with sessions() as session:
        session.add(foreign)  # outside of any context
        await session.delete(foreign)
        with tenant(GLOBEX), pytest.raises(TenantMismatch):
            await session.flush()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        (select(Order.id), [1]),
        (select(aliased(Order).id), [1]),
        (select(Order.id).where(Order.id.in_([1, 2])), [1]),
        (select(Line.id).join(Line.order), [1]),
        (select(Line.id).order_by(Line.id), [1, 3]),
        (select(Line.id).where(select(Order.id).where(Order.id == Line.order_id).exists()), [1]),
        (select(select(Order.id).subquery().c.id), [1]),
        (select(Order.id).union_all(select(aliased(Order).id)), [1, 1]),
    ],
    ids=["columns", "alias", "where", "join", "lines", "exists", "subquery", "union"],
)
async def test_a_select_of_scoped_classes_finds_own_rows_only(
    sessions: Sessions, statement: object, found: list[int]
) -> None:
    async with sessions() as session:
        with tenant(ACME):
            rows = await session.scalars(statement)  # type: ignore[call-overload]  # of many types

            assert rows.all() == found


def orders_of(session: Session, *options: object) -> dict[int, Order | None]:
    lines = session.scalars(select(Line).options(*options))  # type: ignore[arg-type]  # of two types
    return {line.id: line.order for line in lines}


@pytest.mark.parametrize(
    "options",
    [(), (joinedload(Line.order),), (selectinload(Line.order),)],
    ids=["lazy", "joined", "selectin"],
)
async def test_relationships_lead_to_own_rows_only(
    sessions: Sessions, options: tuple[object, ...]
) -> None:
    async with sessions() as session:
        with tenant(ACME):
            found = await session.run_sync(lambda sync: orders_of(sync, *options))
            mine = await session.get_one(Order, 1)
            await session.refresh(mine, ["lines"])

            assert found == {1: mine, 3: None}
            assert [line.id for line in mine.lines] == [1]


async def test_a_filter_does_not_grow_from_load_to_load(
    sessions: Sessions, engine: AsyncEngine
) -> None:
    statements: list[str] = []
    event.listen(engine.sync_engine, "before_cursor_execute", lambda *e: statements.append(e[2]))

    async with sessions() as session:
        with tenant(ACME):
            order = await session.get_one(Order, 1)
            for _ in range(3):
                await session.refresh(order)
                await session.refresh(order, ["lines"])
                await session.refresh(order.lines[0], ["order"])

    assert max(sql.count("tenant_id = ?") for sql in statements) == 1


async def test_an_update_of_a_scoped_class_changes_own_rows_only(sessions: Sessions) -> None:
    async with sessions() as session:
        with tenant(ACME):
            changed = await session.execute(update(Order).values(name="changed"))

            assert getattr(changed, "rowcount") == 1  # noqa: B009 - its type has no such field
