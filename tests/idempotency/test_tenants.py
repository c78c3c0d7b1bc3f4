"""Keys behind the wall: each tenant has its own, also for PostgreSQL's row-level security."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError

from pillarbox import Pillarbox, SQLAlchemyUnitOfWork, tenant
from pillarbox.idempotency.cleanup import Cleanup
from pillarbox.idempotency.middleware import IdempotencyMiddleware
from pillarbox.tenancy import Tenancy
from tests.tenancy.conftest import wall, walls
from tests.tenancy.shop import Customer
from tests.tenancy.wall import Wall, behind

__all__ = ["wall", "walls"]

pytestmark = behind("postgres18+asyncpg", "postgres18+psycopg")

K1 = {"Idempotency-Key": "k-1"}


class NewCustomer(BaseModel):
    id: int


@dataclass
class TenantShop:
    """An application whose tenant comes with a header."""

    box: Pillarbox
    app: FastAPI = field(default_factory=FastAPI)
    executed: list[tuple[str, int]] = field(default_factory=list)

    def open(self) -> None:
        box = self.box

        @self.app.middleware("http")
        async def enter(
            request: Request, call_next: Callable[[Request], Awaitable[Response]]
        ) -> Response:
            named = request.headers.get("x-tenant")
            with nullcontext() if named is None else tenant(named):
                return await call_next(request)

        router = APIRouter(route_class=box.idempotent_route(principal=lambda _: "ada", quota=3))

        @router.post("/customers", status_code=201)
        async def place(
            body: NewCustomer,
            request: Request,
            uow: Annotated[SQLAlchemyUnitOfWork, Depends(box.uow)],
        ) -> str:
            name = request.headers["x-tenant"]
            self.executed.append((name, body.id))
            uow.session.add(Customer(id=body.id))
            await uow.commit()
            return f"{name} has {body.id}"

        async def audited() -> None:
            async with SQLAlchemyUnitOfWork(box.session_factory, tenant_id="globex") as uow:
                await uow.outbox.add(topic="audit", payload={})
                await uow.commit()

        async def entered(request: Request) -> AsyncIterator[None]:
            with tenant(request.headers["x-late-tenant"]):
                yield

        @router.post("/audited", dependencies=[Depends(audited)])
        async def audited_first(_: Annotated[None, Depends(entered)]) -> str:
            return "done"

        self.app.include_router(router)


@pytest.fixture
def shop(wall: Wall) -> TenantShop:
    wall.admin.execute("DELETE FROM idempotency; DELETE FROM consumer_tenant")
    box = Pillarbox(wall.engine, service="shop", environ={"PILLARBOX_TENANCY": "required"})
    found = TenantShop(box)
    found.open()
    return found


async def post(shop: TenantShop, name: str, number: int, key: str = "k-1") -> httpx.Response:
    transport = httpx.ASGITransport(shop.app)
    headers = {"Idempotency-Key": key, "X-Tenant": name}
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        return await client.post("/customers", json={"id": number}, headers=headers)


async def test_one_key_of_two_tenants_is_two_keys(wall: Wall, shop: TenantShop) -> None:
    first = await post(shop, "acme", 901)
    other = await post(shop, "globex", 902)
    again = await post(shop, "acme", 901)

    assert (first.status_code, other.status_code) == (201, 201)
    assert (again.text, again.headers["idempotency-replayed"]) == (first.text, "true")
    assert shop.executed == [("acme", 901), ("globex", 902)]
    rows = wall.rows("SELECT tenant_id, state FROM idempotency ORDER BY tenant_id")
    assert rows == [("acme", "done"), ("globex", "done")]


async def test_a_tenant_is_never_told_that_another_one_has_used_a_key(shop: TenantShop) -> None:
    await post(shop, "acme", 901)

    other = await post(shop, "globex", 901)  # the same request, word for word

    assert other.status_code == 201
    assert "idempotency-replayed" not in other.headers
    assert other.json() == "globex has 901"


async def test_the_quota_of_a_tenant_is_its_own(shop: TenantShop) -> None:
    for number in range(3):
        assert (await post(shop, "acme", 900 + number, f"k-{number}")).status_code == 201

    assert (await post(shop, "acme", 909, "k-9")).status_code == 429
    assert (await post(shop, "globex", 909, "k-9")).status_code == 201


async def test_after_a_refusal_by_the_database_nothing_of_the_tenant_is_left(
    wall: Wall, shop: TenantShop
) -> None:
    await post(shop, "acme", 901)

    with pytest.raises(IntegrityError):
        await post(shop, "acme", 901, "k-2")

    assert wall.rows("SELECT count(*) FROM idempotency") == [(1,)]


def let_keys_expire(wall: Wall) -> None:
    wall.admin.execute("UPDATE idempotency SET expires_at = %s", [datetime(2020, 1, 1, tzinfo=UTC)])


def after_a_restart(wall: Wall) -> Cleanup:
    """Return the clean-up of a process that has had no command."""
    box = Pillarbox(wall.engine, service="shop", environ={"PILLARBOX_TENANCY": "required"})
    TenantShop(box).open()
    (cleanup,) = box._cleanups
    return cleanup


async def test_the_clean_up_looks_after_tenants_that_never_come_back(
    wall: Wall, shop: TenantShop
) -> None:
    """Tenants were known in memory alone: after a restart their keys stayed for ever."""
    for name in ("acme", "globex"):
        await post(shop, name, 901)
    await post(shop, "acme", 902, "k-2")
    let_keys_expire(wall)
    restarted = after_a_restart(wall)

    assert await Cleanup(wall.engine, restarted.store).sweep() == 0  # the wall hides them
    assert await restarted.sweep() == 3
    assert wall.rows("SELECT count(*) FROM idempotency") == [(0,)]


async def test_the_clean_up_looks_after_tenants_of_the_weaker_mode(wall: Wall) -> None:
    wall.admin.execute("DELETE FROM idempotency; DELETE FROM consumer_tenant")
    app = IdempotencyMiddleware(
        accepting,
        sessions=wall.sessions,
        principal=lambda _: "ada",
        authorize=lambda _: True,
        tenancy=Tenancy(required=True),
    )
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        with tenant("acme"):
            answers = [await client.post("/", headers=K1) for _ in range(2)]
    let_keys_expire(wall)

    assert [answer.status_code for answer in answers] == [202, 202]
    assert await after_a_restart(wall).sweep() == 1


async def accepting(scope: object, receive: object, send: Callable[..., Awaitable[None]]) -> None:
    await send({"type": "http.response.start", "status": 202, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def test_a_key_that_is_undone_leaves_no_note_of_its_tenant(
    wall: Wall, shop: TenantShop
) -> None:
    with pytest.raises(IntegrityError):
        await post(shop, "acme", 1)  # a customer that stands already

    assert wall.rows("SELECT count(*) FROM consumer_tenant") == [(0,)]
    await post(shop, "acme", 901, "k-2")
    assert wall.rows("SELECT tenant_id, kind FROM consumer_tenant") == [("acme", "records")]


async def test_an_event_of_a_dependency_is_written_as_its_own_tenant(
    wall: Wall, shop: TenantShop
) -> None:
    """It was left to the end, when the transaction worked for the tenant of the command."""
    wall.admin.execute("DELETE FROM outbox")
    transport = httpx.ASGITransport(shop.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        answers = [
            await client.post("/audited", headers=K1 | {"X-Late-Tenant": "acme"}) for _ in range(2)
        ]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[1].headers["idempotency-replayed"] == "true"
    assert wall.rows("SELECT tenant_id, topic FROM outbox") == [("globex", "audit")] * 2
