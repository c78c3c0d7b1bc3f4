"""The tenant of a request, for everything that is done for it."""

from collections.abc import AsyncIterator, Awaitable, Callable

from fastapi import Request

from pillarbox.errors import TenantRequired
from pillarbox.event.context import tenant

Resolve = Callable[[Request], str | Awaitable[str | None] | None]


def tenant_from(resolve: Resolve) -> Callable[[Request], AsyncIterator[None]]:
    """Make a dependency that puts a request into its tenant.

        router = APIRouter(dependencies=[
            Depends(authenticated), Depends(tenant_from(lambda request: request.state.tenant_id))])

    It runs after the dependencies that stand before it, so that the tenant may come from whoever
    was authenticated. Take it from something that proves it: a header alone does not. A request
    without a tenant, or with one that is no tenant id, is refused.
    """

    async def in_tenant(request: Request) -> AsyncIterator[None]:
        found = resolve(request)
        tenant_id = await found if isinstance(found, Awaitable) else found
        if not tenant_id:
            raise TenantRequired("this request")
        with tenant(tenant_id):
            yield

    return in_tenant
