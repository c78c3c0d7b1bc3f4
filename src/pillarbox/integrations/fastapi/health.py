"""Health: `live` says that the process works, `ready` that it can reach what it needs."""

import asyncio
from datetime import timedelta
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from pillarbox.app import Pillarbox
from pillarbox.errors import PillarboxError
from pillarbox.projector.projector import OutboxProjector

_UNHEALTHY = 503


def health_router(
    box: Pillarbox,
    *,
    broker: bool = True,
    turned_within: timedelta = timedelta(seconds=60),
    timeout: timedelta = timedelta(seconds=2),
) -> APIRouter:
    """Make the routes `/health/live` and `/health/ready`, for the probes of an orchestrator.

    `live` asks nobody else: it answers, and a projector beside it has turned its loop
    `turned_within` that time. `ready` asks the database and the broker, each for `timeout`. An
    application that only records events needs no broker: pass `broker=False`, so that an outage
    does not take it out of service.
    """
    router = APIRouter(prefix="/health", tags=["health"])

    @router.get("/live")
    async def live() -> JSONResponse:
        projectors = [w.turned_ago for w in box.at_work if isinstance(w, OutboxProjector)]
        stuck = [ago for ago in projectors if ago is not None and ago > turned_within]
        return _answer({"projector": "stuck" if stuck else "ok"} if projectors else {})

    @router.get("/ready")
    async def ready() -> JSONResponse:
        seconds = timeout.total_seconds()
        asked = {"database": _database(box, seconds)}
        if broker and box.has_bus:
            asked["broker"] = _broker(box, seconds)
        found = await asyncio.gather(*asked.values())
        return _answer(dict(zip(asked, found, strict=True)))

    return router


def _answer(checks: dict[str, str]) -> JSONResponse:
    healthy = all(found == "ok" for found in checks.values())
    content: dict[str, Any] = {"status": "ok" if healthy else "unhealthy", "checks": checks}
    headers = {"Cache-Control": "no-store"}
    return JSONResponse(content, 200 if healthy else _UNHEALTHY, headers)


async def _database(box: Pillarbox, seconds: float) -> str:
    try:
        async with asyncio.timeout(seconds), box.engine.connect() as connection:
            await connection.run_sync(_ping)
    except (SQLAlchemyError, OSError, TimeoutError):
        return "unreachable"
    return "ok"


def _ping(connection: Connection) -> None:
    """Ask without a transaction, which on SQLite would wait for a writer."""
    if connection.connection.dbapi_connection is not None:
        connection.dialect.do_ping(connection.connection.dbapi_connection)


async def _broker(box: Pillarbox, seconds: float) -> str:
    try:
        async with asyncio.timeout(seconds):
            await box.bus.start()
    except (PillarboxError, OSError, TimeoutError):
        return "unreachable"
    return "ok"
