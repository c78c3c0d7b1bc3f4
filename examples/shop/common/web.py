"""A web service: whose request it is, whether the service is well, and how it stops."""

import os
import signal
import sys
from typing import Any, Final

import uvicorn
from fastapi import Depends, FastAPI, Request

from examples.shop.common.box import open_engine, operator_database_url
from examples.shop.common.problems import add_problems
from pillarbox import Pillarbox
from pillarbox.integrations.fastapi import health_router, tenant_from
from pillarbox.ops import State

DEFAULT_TENANT: Final = "main"
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


def serve(app: FastAPI) -> None:
    """Serve on `PORT` until SIGTERM or Ctrl-C; requests at work have 30 seconds to end."""
    # uvicorn drains, and then raises the signal once more: that is the end, and a good one.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    uvicorn.run(
        app,
        host=os.environ.get("HOST", "127.0.0.1"),
        port=int(os.environ.get("PORT", DEFAULT_PORT)),
        timeout_graceful_shutdown=DRAIN_SECONDS,
        access_log=False,
        log_level="warning",
    )
