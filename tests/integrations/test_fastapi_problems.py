"""Errors as problem details: ours, the framework's, and those that nobody expected."""

import logging
from collections.abc import AsyncIterator
from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, Body, Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel
from sqlalchemy.orm.exc import StaleDataError

from pillarbox import CommitUnknown, Pillarbox, SqlAlchemyOutbox
from pillarbox.errors import (
    BusUnreachable,
    DatabaseUnreachable,
    InvalidKey,
    InvalidTopic,
    PayloadTooLarge,
    TenantMismatch,
    TenantRequired,
)
from pillarbox.event.context import current_tenant
from pillarbox.idempotency.errors import CommandInProgress, PrincipalMissing
from pillarbox.integrations.fastapi import add_problem_handlers, tenant_from
from tests.support.database import Database, on


class NewOrder(BaseModel):
    id: str
    items: list[int]


RAISED = {
    "tenant": TenantRequired("this request"),
    "other-tenant": TenantMismatch("this request", "acme", "globex"),
    "bad-tenant": InvalidKey("tenant_id", "is no tenant id", "use letters"),
    "key": InvalidKey("key", "planted-secret", "no"),
    "large": PayloadTooLarge(9, 8, "kafka"),
    "topic": InvalidTopic("topic", "planted-secret", "no"),
    "database": DatabaseUnreachable("postgresql://planted-secret"),
    "bus": BusUnreachable("kafka://planted-secret", "gone"),
    "unknown": CommitUnknown(None),
    "busy": CommandInProgress(3),
    "nobody": PrincipalMissing(),
    "stale": StaleDataError("planted-secret"),
    "http": HTTPException(404, "no such order", {"X-Shelf": "7"}),
    "plain-http": HTTPException(405),
    "members": HTTPException(409, {"available": 3}),
    "surprise": ZeroDivisionError("planted-secret"),
}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    add_problem_handlers(app, docs_url="https://docs.example/")

    @app.post("/orders")
    async def place(body: NewOrder) -> str:
        return body.id

    @app.post("/raises/{name}")
    async def raises(name: str) -> None:
        raise RAISED[name]

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        yield client


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("tenant", 400, "tenant-required"),
        ("other-tenant", 403, "tenant-mismatch"),
        ("bad-tenant", 400, "invalid-key"),
        ("key", 500, "invalid-key"),
        ("large", 413, "payload-too-large"),
        ("topic", 500, "invalid-topic"),
        ("database", 503, "database-unreachable"),
        ("bus", 503, "bus-unreachable"),
        ("unknown", 503, "commit-unknown"),
        ("busy", 409, "command-in-progress"),
        ("nobody", 500, "principal-missing"),
    ],
)
async def test_an_error_of_ours_has_a_status_and_a_link_to_its_page(
    client: httpx.AsyncClient, name: str, status: int, code: str
) -> None:
    answer = await client.post(f"/raises/{name}")

    assert answer.status_code == answer.json()["status"] == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == f"https://docs.example/errors/{code}.html"
    assert answer.json()["instance"] == f"/raises/{name}"
    assert answer.json()["title"]


@pytest.mark.parametrize("name", RAISED)
async def test_no_answer_tells_of_the_servers_own_affairs(
    client: httpx.AsyncClient, name: str
) -> None:
    answer = await client.post(f"/raises/{name}")

    assert "planted-secret" not in answer.text
    assert answer.headers["content-type"] == "application/problem+json"


async def test_what_may_be_repeated_says_when(client: httpx.AsyncClient) -> None:
    busy, away = await client.post("/raises/busy"), await client.post("/raises/database")

    assert (busy.headers["retry-after"], away.headers["retry-after"]) == ("3", "1")


async def test_errors_of_the_framework_are_problems_too(client: httpx.AsyncClient) -> None:
    missing = await client.post("/raises/http")
    plain = await client.post("/raises/plain-http")
    members = await client.post("/raises/members")
    nowhere = await client.get("/nowhere")
    stale = await client.post("/raises/stale")
    surprise = await client.post("/raises/surprise")

    assert missing.json() == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "no such order",
        "instance": "/raises/http",
    }
    assert missing.headers["x-shelf"] == "7"
    assert "detail" not in plain.json()
    assert members.json()["available"] == 3
    assert (nowhere.status_code, nowhere.json()["title"]) == (404, "Not Found")
    assert (stale.status_code, stale.json()["type"]) == (409, "about:blank")
    assert (surprise.status_code, surprise.json()["title"]) == (500, "Internal Server Error")


async def test_what_is_wrong_with_a_request_is_named_by_field(client: httpx.AsyncClient) -> None:
    answer = await client.post("/orders", json={"items": [1, "planted-secret"]})

    assert answer.status_code == 422
    assert [(error["in"], error["pointer"]) for error in answer.json()["errors"]] == [
        ("body", "/id"),
        ("body", "/items/1"),
    ]
    assert "planted-secret" not in answer.text


async def test_a_fault_of_the_server_is_logged(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="pillarbox.integrations.fastapi.problems"):
        await client.post("/raises/database")
        await client.post("/raises/tenant")

    assert [getattr(record, "code", None) for record in caplog.records] == ["database-unreachable"]


async def test_the_openapi_document_shows_problems(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()

    responses = document["paths"]["/orders"]["post"]["responses"]
    assert list(responses["422"]["content"]) == ["application/problem+json"]


@on("postgres18+asyncpg")
async def test_a_request_is_done_in_its_tenant_and_refused_without_one(database: Database) -> None:
    url = database.url.render_as_string(hide_password=False)
    box = Pillarbox(url, service="orders", environ={"PILLARBOX_TENANCY": "required"})
    app = FastAPI()
    add_problem_handlers(app)

    def authenticated(request: Request) -> None:
        request.state.tenant_id = request.headers.get("x-proven-tenant")

    async def resolved(request: Request) -> str | None:
        tenant_id: str | None = request.state.tenant_id
        return tenant_id

    router = APIRouter(
        route_class=box.idempotent_route(principal=lambda _: "ada"),
        dependencies=[Depends(authenticated), Depends(tenant_from(resolved))],
    )

    @router.post("/notes")
    async def note(text: Annotated[str, Body()]) -> str | None:
        async with box.unit_of_work() as uow:
            await SqlAlchemyOutbox(uow.session).add(topic="notes", payload={"text": text})
            await uow.commit()
        return current_tenant()

    @router.get("/sync")
    def in_a_thread() -> str | None:
        return current_tenant()

    app.include_router(router)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        acme, key = {"x-proven-tenant": "acme"}, {"Idempotency-Key": "k1"}
        noted = await client.post("/notes", json="a", headers=acme | key)
        again = await client.post("/notes", json="a", headers=acme | key)
        other = await client.post("/notes", json="a", headers={"x-proven-tenant": "b"} | key)
        threaded = await client.get("/sync", headers=acme)
        nobody = await client.post("/notes", json="b", headers=key)
        odd = [
            await client.get("/sync", headers={"x-proven-tenant": tenant_id})
            for tenant_id in ("t" * 65, "a b")
        ]
    await box.engine.dispose()

    assert (noted.json(), again.json(), other.json(), threaded.json()) == (
        "acme", "acme", "b", "acme",
    )  # fmt: skip
    assert nobody.status_code == 400
    assert nobody.json()["type"] == "urn:pillarbox:error:tenant-required"
    assert {(each.status_code, each.json()["type"]) for each in odd} == {
        (400, "urn:pillarbox:error:invalid-key")
    }
    assert sorted(record.tenant_id for record in await database.events()) == ["acme", "b"]
    assert current_tenant() is None
