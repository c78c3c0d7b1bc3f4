"""A web service: whose request it is, whether the service is well, and how it stops."""

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final

import uvicorn
from fastapi import Depends, FastAPI, Request

from examples.shop.common.box import open_engine, operator_database_url
from examples.shop.common.problems import add_problems
from pillarbox import Pillarbox
from pillarbox.integrations.fastapi import health_router, tenant_from
from pillarbox.ops import State

DEFAULT_TENANT: Final = "main"
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8080
DRAIN_SECONDS: Final = 30


def tenant_of(request: Request) -> str:
    """Say whose request it is. Here a header does; in your service it is whoever has logged in."""
    return request.headers.get("x-tenant") or DEFAULT_TENANT


def web_service(box: Pillarbox) -> FastAPI:
    """Make the application of a service, with `GET /health` and probes below it."""
    app = FastAPI(
        title=f"{box.settings.service} service",
        lifespan=box.lifespan(),
        dependencies=[Depends(tenant_from(tenant_of))],
    )
    add_problems(app)
    app.include_router(health_router(box, broker=False))  # events wait while it is away
    # By the service's own role, which sees a tenant's events alone, this would count none.
    state = State(open_engine(operator_database_url()))

    @app.get("/health")
    async def health() -> dict[str, Any]:
        waiting = await state.backlog()
        return {"status": "healthy", "pending_outbox_events": waiting.at_least}

    return app


def address_of(environ: Mapping[str, str]) -> tuple[str, int]:
    """Return host and port: `HOST` and `PORT`, or 8080 for this machine alone."""
    return environ.get("HOST", DEFAULT_HOST), int(environ.get("PORT", DEFAULT_PORT))


def serve(app: FastAPI, drain_seconds: int = DRAIN_SECONDS) -> None:
    """Serve on `PORT` until SIGTERM or Ctrl-C; requests at work have 30 seconds to end."""
    host, port = address_of(os.environ)
    # uvicorn drains, and then raises the signal once more: that is the end, and a good one.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    uvicorn.run(
        app,
        host=host,
        port=port,
        timeout_graceful_shutdown=drain_seconds,
        access_log=False,
        log_level="warning",
    )
