"""For FastAPI: problem details, the tenant of a request, and health.

The lifespan, the dependencies and the idempotent route are the box's own: `box.lifespan()`,
`Depends(box.session)`, `Depends(box.uow)`, `box.idempotent_route(…)`.
"""

from pillarbox.integrations.fastapi.health import health_router
from pillarbox.integrations.fastapi.problems import add_problem_handlers
from pillarbox.integrations.fastapi.tenants import tenant_from

__all__ = ["add_problem_handlers", "health_router", "tenant_from"]
