"""Health: a process that works is live, and ready when it reaches database and broker."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import httpx
import pytest
from fastapi import FastAPI

from pillarbox import MemoryMessageBus, OutboxProjector, Pillarbox
from pillarbox.errors import BusUnreachable
from pillarbox.integrations.fastapi import health_router
from tests.support.database import Database, on

on_two = on("postgres18+asyncpg", "sqlite+aiosqlite")


class AwayBus(MemoryMessageBus):
    """A broker that may be away."""

    is_away = False

    async def start(self) -> Sequence[str]:
        if self.is_away:
            raise BusUnreachable("memory", "in this test")
        return await super().start()


@asynccontextmanager
async def client_of(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        yield client


@on_two
async def test_a_service_that_reaches_everything_is_ready(database: Database) -> None:
    bus, app = AwayBus(), FastAPI()
    app.include_router(health_router(Pillarbox(database.engine, bus, environ={})))

    async with client_of(app) as client, database.sessions() as session:
        await session.begin()  # a writer at work keeps nobody from being ready
        live, ready = await client.get("/health/live"), await client.get("/health/ready")
        bus.is_away = True
        live_without, not_ready = (
            await client.get("/health/live"),
            await client.get("/health/ready"),
        )

    assert (live.status_code, live_without.status_code) == (200, 200)
    assert ready.json() == {"status": "ok", "checks": {"database": "ok", "broker": "ok"}}
    assert ready.headers["cache-control"] == "no-store"
    assert not_ready.status_code == 503
    assert not_ready.json()["checks"] == {"database": "ok", "broker": "unreachable"}


@on("postgres18+asyncpg")
async def test_a_service_that_only_records_does_not_need_the_broker(database: Database) -> None:
    bus, app = AwayBus(), FastAPI()
    bus.is_away = True
    app.include_router(health_router(Pillarbox(database.engine, bus, environ={}), broker=False))
    app.include_router(health_router(Pillarbox(database.engine, environ={})), prefix="/busless")

    async with client_of(app) as client:
        ready, busless = (
            await client.get("/health/ready"),
            await client.get("/busless/health/ready"),
        )

    assert ready.json()["checks"] == busless.json()["checks"] == {"database": "ok"}


async def test_a_database_that_does_not_answer_makes_nobody_ready_and_kills_nobody() -> None:
    box = Pillarbox("postgresql+asyncpg://nobody@127.0.0.1:1/none", environ={})
    app = FastAPI()
    app.include_router(health_router(box))

    async with client_of(app) as client:
        live, ready = await client.get("/health/live"), await client.get("/health/ready")
    await box.engine.dispose()

    assert (live.status_code, ready.status_code) == (200, 503)
    assert ready.json()["checks"] == {"database": "unreachable"}


@on("postgres18+psycopg")
async def test_a_projector_whose_loop_stands_still_is_not_live(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = database.url.render_as_string(hide_password=False)
    box, app = Pillarbox(url, AwayBus(), environ={}), FastAPI()
    app.include_router(health_router(box))

    async with client_of(app) as client:
        async with box.running(projector=True):
            working = await client.get("/health/live")
            with monkeypatch.context() as patched:
                still = property(lambda _: timedelta(minutes=2))
                patched.setattr(OutboxProjector, "turned_ago", still)
                stuck = await client.get("/health/live")
        ended = await client.get("/health/live")

    assert (working.json()["checks"], working.status_code) == ({"projector": "ok"}, 200)
    assert (stuck.json()["checks"], stuck.status_code) == ({"projector": "stuck"}, 503)
    assert ended.json()["checks"] == {}
