"""A connection lost during COMMIT leaves an unknown outcome, and the database can tell it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.pool import QueuePool

from pillarbox import CommitOutcome, CommitUnknown, SQLAlchemyUnitOfWork
from tests.support.database import Database, on_postgres
from tests.support.faultproxy import CLIENT, SERVER, Cut, Drop, FaultProxy, Freeze, Rule, Seen
from tests.support.orders import Line, Order
from tests.support.waiting import until

pytestmark = on_postgres
LIMIT = 10.0


@dataclass(frozen=True, slots=True)
class Proxied:
    """A database whose connections go through a fault proxy."""

    direct: Database
    proxy: FaultProxy
    engine: AsyncEngine
    sessions: async_sessionmaker[AsyncSession]

    @property
    def checked_out(self) -> int:
        assert isinstance(self.engine.pool, QueuePool)
        return self.engine.pool.checkedout()

    async def backend(self, session: AsyncSession) -> int:
        found: int = (await session.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        return found

    async def terminate(self, backend: int) -> None:
        await self.direct.scalar("SELECT pg_terminate_backend(:pid, 5000)", {"pid": backend})


@pytest.fixture
async def proxied(database: Database) -> AsyncIterator[Proxied]:
    host, port = database.url.host, database.url.port
    assert host is not None
    assert port is not None
    async with FaultProxy(host, port) as proxy:
        url = database.url.set(port=proxy.port)
        async with database.other_engine(url) as engine:
            sessions = async_sessionmaker(engine, expire_on_commit=False)
            yield Proxied(database, proxy, engine, sessions)


@asynccontextmanager
async def placed(proxied: Proxied, order_id: str = "o-1") -> AsyncIterator[SQLAlchemyUnitOfWork]:
    """Open a unit of work whose order is flushed and whose event waits for the commit."""
    async with SQLAlchemyUnitOfWork(proxied.sessions) as uow:
        await uow.repository(Order).save(Order.place(order_id))
        await uow.session.flush()
        yield uow


async def settled(
    error: CommitUnknown, sessions: async_sessionmaker[AsyncSession]
) -> CommitOutcome:
    """Ask until the transaction has ended: the server may need a moment to notice a lost client."""

    async def ended() -> bool:
        return await error.outcome(sessions) is not CommitOutcome.IN_PROGRESS

    await until(ended, "the end of the transaction")
    return await error.outcome(sessions)


async def test_a_lost_reply_to_commit_is_unknown_and_turns_out_committed(proxied: Proxied) -> None:
    async with placed(proxied) as uow:
        proxied.proxy.plan(Rule(CLIENT, Seen(b"COMMIT"), Cut()))
        with pytest.raises(CommitUnknown) as raised:
            await uow.commit()

    assert raised.value.transaction_id is not None
    assert isinstance(raised.value.__cause__, DBAPIError)
    assert await settled(raised.value, proxied.sessions) == CommitOutcome.COMMITTED
    assert await proxied.direct.order_ids() == ["o-1"]
    assert await proxied.direct.event_types() == ["OrderPlaced"]


async def test_a_lost_reply_without_a_reset_is_unknown_as_well(proxied: Proxied) -> None:
    async with placed(proxied) as uow:
        proxied.proxy.plan(Rule(CLIENT, Seen(b"COMMIT"), Cut(reset=False)))
        with pytest.raises(CommitUnknown) as raised:
            await uow.commit()

    assert await settled(raised.value, proxied.sessions) == CommitOutcome.COMMITTED


async def test_a_commit_that_never_reached_the_server_is_unknown_and_turns_out_aborted(
    proxied: Proxied,
) -> None:
    async with placed(proxied) as uow:
        proxied.proxy.plan(Rule(SERVER, Seen(b"COMMIT"), Cut()))
        with pytest.raises(CommitUnknown) as raised:
            await uow.commit()

    assert await settled(raised.value, proxied.sessions) == CommitOutcome.ABORTED
    assert await proxied.direct.order_ids() == []
    assert await proxied.direct.count() == 0


async def test_the_message_of_an_unknown_commit_says_how_to_find_out(proxied: Proxied) -> None:
    async with placed(proxied) as uow:
        proxied.proxy.plan(Rule(CLIENT, Seen(b"COMMIT"), Cut()))
        with pytest.raises(CommitUnknown, match="before you repeat it") as raised:
            await uow.commit()

    [asked] = [part for part in str(raised.value).split("`") if part.startswith("SELECT")]
    assert await proxied.direct.scalar(asked.replace("::", "\\:\\:")) == "committed"


async def test_a_connection_lost_before_commit_is_a_plain_failure(proxied: Proxied) -> None:
    async with placed(proxied) as uow:
        proxied.proxy.now(Cut())
        with pytest.raises(DBAPIError):
            await uow.commit()

    assert await proxied.direct.order_ids() == []
    assert await proxied.direct.count() == 0


async def test_a_connection_lost_while_the_events_are_written_is_a_plain_failure(
    proxied: Proxied,
) -> None:
    async with placed(proxied) as uow:
        proxied.proxy.plan(Rule(SERVER, Seen(b"OrderPlaced"), Cut()))
        with pytest.raises(DBAPIError):
            await uow.commit()

    assert await proxied.direct.count() == 0


async def test_a_backend_terminated_before_commit_is_a_plain_failure(proxied: Proxied) -> None:
    async with placed(proxied) as uow:
        await proxied.terminate(await proxied.backend(uow.session))
        with pytest.raises(DBAPIError):
            await uow.commit()

    assert await proxied.direct.count() == 0


async def test_a_backend_terminated_before_it_read_the_commit_is_unknown_and_aborted(
    proxied: Proxied,
) -> None:
    async with placed(proxied) as uow:
        backend = await proxied.backend(uow.session)
        proxied.proxy.plan(Rule(SERVER, Seen(b"COMMIT"), Freeze()))
        commit = asyncio.ensure_future(uow.commit())
        await proxied.proxy.fired()
        await proxied.terminate(backend)
        proxied.proxy.thaw()
        with pytest.raises(CommitUnknown) as raised:
            await commit

    assert await settled(raised.value, proxied.sessions) == CommitOutcome.ABORTED


async def test_a_constraint_broken_at_commit_is_a_refusal_not_an_unknown(proxied: Proxied) -> None:
    async with placed(proxied) as uow:
        uow.session.add(Line(id="l-1", order_id="no such order"))
        with pytest.raises(IntegrityError):
            await uow.commit()

    assert await proxied.direct.order_ids() == []
    assert await proxied.direct.count() == 0


async def test_a_unit_of_work_with_an_unknown_commit_is_over(proxied: Proxied) -> None:
    async with placed(proxied) as uow:
        proxied.proxy.plan(Rule(CLIENT, Seen(b"COMMIT"), Cut()))
        with pytest.raises(CommitUnknown):
            await uow.commit()
        with pytest.raises(Exception, match="failed to commit"):
            await uow.commit()

    assert proxied.checked_out == 0
    assert await proxied.direct.event_types() == ["OrderPlaced"]


async def test_the_same_order_in_a_new_unit_of_work_after_an_aborted_unknown_is_recorded_once(
    proxied: Proxied,
) -> None:
    order = Order.place("o-1")
    async with SQLAlchemyUnitOfWork(proxied.sessions) as uow:
        await uow.repository(Order).save(order)
        proxied.proxy.plan(Rule(SERVER, Seen(b"COMMIT"), Cut()))
        with pytest.raises(CommitUnknown) as raised:
            await uow.commit()
    assert await settled(raised.value, proxied.sessions) == CommitOutcome.ABORTED

    async with SQLAlchemyUnitOfWork(proxied.sessions) as uow:
        await uow.repository(Order).save(order)
        await uow.commit()

    assert await proxied.direct.order_ids() == ["o-1"]
    assert await proxied.direct.event_types() == ["OrderPlaced"]


async def test_a_commit_in_progress_is_told_as_such(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.outbox.add(topic="manual", payload={})
        await uow.outbox.flush()
        number = await uow.session.scalar(text("SELECT CAST(pg_current_xact_id() AS text)"))
        error = CommitUnknown(number)

        assert await error.outcome(database.sessions) is CommitOutcome.IN_PROGRESS


async def test_without_a_transaction_id_the_outcome_stays_unknown(database: Database) -> None:
    assert await CommitUnknown(None).outcome(database.sessions) is CommitOutcome.UNKNOWN


async def test_a_caller_who_gives_up_on_a_frozen_commit_is_set_free_and_no_connection_is_lost(
    proxied: Proxied,
) -> None:
    proxied.proxy.plan(Rule(SERVER, Seen(b"COMMIT"), Drop(CLIENT), after=True))

    async def give_up() -> None:
        async with asyncio.timeout(LIMIT), placed(proxied) as uow, asyncio.timeout(0.1):
            await uow.commit()

    with pytest.raises(TimeoutError):
        await give_up()

    assert proxied.checked_out == 0
