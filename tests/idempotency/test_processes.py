"""One key in two processes at once: one of them executes, the other one never."""

import asyncio
import signal
import subprocess

import httpx
from sqlalchemy import event

from tests.idempotency.conftest import Make, client_of
from tests.idempotency.keys import K1, ORDER
from tests.idempotency.processes import server
from tests.support.database import Database, on

ADA = K1 | {"X-User": "ada"}
PAIRS = 20

everywhere = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")


async def entered(process: subprocess.Popen[str]) -> None:
    """Wait until a process executes the slow command."""
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == "entered\n"


@everywhere
async def test_a_key_that_another_process_works_on_is_not_executed_a_second_time(
    database: Database, make: Make
) -> None:
    """Get 409 at once from PostgreSQL; on SQLite wait for the writer, and then get its answer."""
    shop = make()
    with server(database) as (process, address):
        async with (
            httpx.AsyncClient(base_url=address, headers=ADA, timeout=60) as there,
            client_of(shop) as here,
            asyncio.TaskGroup() as tasks,
        ):
            first = tasks.create_task(there.post("/slow", json=ORDER))
            await entered(process)
            meanwhile = tasks.create_task(here.post("/slow", json=ORDER, headers=K1))
            if database.is_postgres:
                await meanwhile
            process.send_signal(signal.SIGUSR1)
        async with client_of(shop) as here:
            again = await here.post("/slow", json=ORDER, headers=K1)

    second = meanwhile.result()
    assert (first.result().status_code, first.result().json()) == (201, ORDER)
    assert "idempotency-replayed" not in first.result().headers
    assert second.status_code == (409 if database.is_postgres else 201)
    assert ("idempotency-replayed" in second.headers) is not database.is_postgres
    assert (again.status_code, again.content) == (201, first.result().content)
    assert again.headers["idempotency-replayed"] == "true"
    assert shop.executed == []
    assert await database.event_types() == ["OrderPlaced"]


@everywhere
async def test_of_two_processes_with_one_key_at_once_one_executes_it(
    database: Database, make: Make
) -> None:
    make()
    with server(database) as (_, one), server(database) as (_, other):
        async with (
            httpx.AsyncClient(base_url=one, timeout=60) as left,
            httpx.AsyncClient(base_url=other, timeout=60) as right,
        ):
            for number in range(PAIRS):
                order = {"id": f"o-{number}", "total": 7}
                headers = {"Idempotency-Key": f"k-{number}", "X-User": "ada"}
                answers = await asyncio.gather(
                    *(
                        client.post("/orders", json=order, headers=headers)
                        for client in (left, right)
                    )
                )
                executed = [a for a in answers if "idempotency-replayed" not in a.headers]
                done = [a.status_code for a in executed if a.status_code != 409]
                assert done == [201]
                assert {a.status_code for a in answers} <= {201, 409}
                if not database.is_postgres:
                    assert len(executed) == 1  # the other one has waited for the answer

    assert len(await database.order_ids()) == PAIRS
    assert await database.event_types() == ["OrderPlaced"] * PAIRS


@on("sqlite+aiosqlite")
async def test_a_process_that_waits_too_long_for_the_writer_tells_its_client_to_come_again(
    database: Database, make: Make
) -> None:
    """The lock is taken by BEGIN, before the claim; its error was the client's, as a 500."""
    first, second = make(), make()  # two stores, like two processes

    @event.listens_for(second.box.engine.sync_engine, "connect")
    def shorten(connection: object, record: object) -> None:
        connection.execute("PRAGMA busy_timeout = 50")  # type: ignore[attr-defined] # the driver's

    async with client_of(first) as one, client_of(second) as other, asyncio.TaskGroup() as tasks:
        slow = tasks.create_task(one.post("/slow", json=ORDER, headers=K1))
        await first.entered.wait()
        refused = await other.post("/slow", json=ORDER, headers=K1)
        first.proceed.set()

    assert (refused.status_code, refused.headers.get("retry-after")) == (409, "1")
    assert slow.result().status_code == 201
    assert second.executed == []
