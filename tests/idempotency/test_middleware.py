"""The weaker mode: any ASGI application, a committed row with a lease and a token."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import text, update
from sqlalchemy.ext.asyncio import async_sessionmaker
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from pillarbox.database import make_engine
from pillarbox.errors import InvalidConfig
from pillarbox.idempotency.middleware import IdempotencyMiddleware
from pillarbox.idempotency.settings import IdempotencySettings
from pillarbox.schema.tables import idempotency
from tests.support.database import Database, on
from tests.support.waiting import until

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")

K1 = {"Idempotency-Key": "k-1"}


@dataclass
class Till:
    """An application that knows nothing of keys, behind the middleware."""

    database: Database
    executed: list[str] = field(default_factory=list)
    revoked: set[str] = field(default_factory=set)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    proceed: asyncio.Event = field(default_factory=asyncio.Event)
    turns: defaultdict[int, asyncio.Event] = field(
        default_factory=lambda: defaultdict(asyncio.Event)
    )
    """Lets the numbered calls of a kind end, one by one."""
    late_status: int = 201
    """What the first of them ends with."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    def open(self, sessions: Any, **options: Any) -> None:
        routes = [Route("/{kind}", self.sell, methods=["GET", "POST", "PUT"])]
        self.app = IdempotencyMiddleware(
            Starlette(routes=routes),
            sessions=sessions,
            principal=lambda scope: dict(scope["headers"]).get(b"x-user", b"ada").decode(),
            authorize=self.may,
            operation=lambda _: "/{kind}",
            settings=IdempotencySettings(**options),
        )

    async def may(self, scope: Any) -> bool:
        return dict(scope["headers"]).get(b"x-user", b"ada").decode() not in self.revoked

    async def sell(self, request: Request) -> Response:
        kind = request.path_params["kind"]
        self.executed.append((await request.body()).decode())
        match kind:
            case "slow":
                self.entered.set()
                await self.proceed.wait()
            case "in-turn":
                return await self.sell_in_turn(len(self.executed))
            case "raises":
                raise ZeroDivisionError
            case "http-500":
                return PlainTextResponse("oops", 500)
            case "large":
                return PlainTextResponse("x" * 300_000)
            case "events":
                return StreamingResponse(_events(), media_type="text/event-stream")
        return PlainTextResponse(f"sold {len(self.executed)}", 201, {"Set-Cookie": "a=b"})

    async def sell_in_turn(self, number: int) -> Response:
        await self.turns[number].wait()
        return PlainTextResponse(f"sold {number}", self.late_status if number == 1 else 201)


async def _events() -> AsyncIterator[bytes]:
    yield b"data: 1\n\n"


@pytest.fixture
async def till(database: Database) -> AsyncIterator[Till]:
    async with database.engine.begin() as connection:
        await connection.execute(text("DELETE FROM idempotency"))
    engine = make_engine(database.url)
    found = Till(database)
    found.open(async_sessionmaker(engine))
    yield found
    await engine.dispose()


@pytest.fixture
async def client(till: Till) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(till, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://till") as opened:
        yield opened


async def test_a_repeated_command_is_executed_once(till: Till, client: httpx.AsyncClient) -> None:
    first = await client.post("/sale", content="tea", headers=K1)
    again = await client.post("/sale", content="tea", headers=K1)

    assert (first.status_code, first.text) == (201, "sold 1")
    assert (again.status_code, again.text) == (201, "sold 1")
    assert again.headers["idempotency-replayed"] == "true"
    assert ("set-cookie" in first.headers, "set-cookie" in again.headers) == (True, False)
    assert till.executed == ["tea"]


async def test_a_second_request_while_the_first_runs_gets_a_conflict(
    till: Till, client: httpx.AsyncClient
) -> None:
    first = asyncio.create_task(client.post("/slow", content="tea", headers=K1))
    await till.entered.wait()

    second = await client.post("/slow", content="tea", headers=K1)
    other = await client.post("/slow", content="coffee", headers=K1)
    till.proceed.set()

    assert (second.status_code, second.headers["retry-after"]) == (409, "1")
    assert other.status_code == 422
    assert (await first).status_code == 201


@pytest.mark.parametrize("path", ["/other", "/sale?fast=1"])
async def test_another_request_of_the_operation_is_refused(
    client: httpx.AsyncClient, path: str
) -> None:
    await client.post("/sale", content="tea", headers=K1)

    assert (await client.post(path, content="tea", headers=K1)).status_code == 422


async def test_another_principal_is_independent(till: Till, client: httpx.AsyncClient) -> None:
    await client.post("/sale", content="tea", headers=K1)
    other = await client.post("/sale", content="tea", headers=K1 | {"X-User": "bob"})

    assert other.text == "sold 2"


async def test_another_operation_is_independent(till: Till, client: httpx.AsyncClient) -> None:
    posted = await client.post("/sale", content="tea", headers=K1)
    put = await client.put("/sale", content="tea", headers=K1)

    assert (posted.text, put.text) == ("sold 1", "sold 2")
    assert "idempotency-replayed" not in put.headers


async def test_authorisation_runs_before_a_replay(till: Till, client: httpx.AsyncClient) -> None:
    await client.post("/sale", content="tea", headers=K1)
    till.revoked.add("ada")

    refused = await client.post("/sale", content="tea", headers=K1)

    assert refused.status_code == 403
    assert "sold" not in refused.text


@pytest.mark.parametrize("kind", ["raises", "http-500"])
async def test_after_a_server_error_a_repetition_executes(
    till: Till, client: httpx.AsyncClient, kind: str
) -> None:
    for _ in range(2):
        assert (await client.post(f"/{kind}", content="tea", headers=K1)).status_code == 500

    assert till.executed == ["tea", "tea"]


@pytest.mark.parametrize("kind", ["large", "events"])
async def test_an_answer_that_is_not_kept_is_given_once_and_executed_once(
    till: Till, client: httpx.AsyncClient, kind: str
) -> None:
    first = await client.post(f"/{kind}", content="tea", headers=K1)
    again = await client.post(f"/{kind}", content="tea", headers=K1)

    assert first.status_code == 200
    assert len(first.content) in {300_000, 9}
    assert (again.status_code, till.executed) == (409, ["tea"])


@pytest.mark.parametrize("late_status", [201, 500], ids=["answers", "fails"])
async def test_a_command_whose_process_died_is_taken_over_and_its_late_end_changes_nothing(
    till: Till,
    client: httpx.AsyncClient,
    caplog: pytest.LogCaptureFixture,
    late_status: int,
) -> None:
    """Both once gave the same answer, so that nobody could tell whose was recorded."""
    first, second = await taken_over(till, client, late_status)

    till.turns[2].set()
    answered = await second
    till.turns[1].set()
    late = await first
    third = await client.post("/in-turn", content="tea", headers=K1)

    assert (answered.status_code, answered.text) == (201, "sold 2")
    assert (late.status_code, late.text) == (late_status, "sold 1")
    assert (third.status_code, third.text) == (201, "sold 2")
    assert third.headers["idempotency-replayed"] == "true"
    assert ("command_lease_lost" in caplog.messages) is (late_status == 201)
    assert till.executed == ["tea", "tea"]


@pytest.mark.parametrize("late_status", [201, 500], ids=["answers", "fails"])
async def test_a_late_end_while_another_has_taken_over_leaves_the_key_to_that_one(
    till: Till, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, late_status: int
) -> None:
    first, second = await taken_over(till, client, late_status)

    till.turns[1].set()
    await first
    third = await client.post("/in-turn", content="tea", headers=K1)
    till.turns[2].set()
    answered = await second
    fourth = await client.post("/in-turn", content="tea", headers=K1)

    assert (third.status_code, answered.text, fourth.text) == (409, "sold 2", "sold 2")
    assert ("command_lease_lost" in caplog.messages) is (late_status == 201)
    assert till.executed == ["tea", "tea"]


async def taken_over(
    till: Till, client: httpx.AsyncClient, late_status: int
) -> list[asyncio.Task[httpx.Response]]:
    """Have a second one take over from a first one that is late."""
    till.late_status = late_status
    first = await started(till, client)
    async with till.database.engine.begin() as connection:
        past = datetime(2020, 1, 1, tzinfo=UTC)  # as after a silence longer than the lease
        await connection.execute(update(idempotency).values(lease_until=past))
    return [first, await started(till, client)]


async def started(till: Till, client: httpx.AsyncClient) -> asyncio.Task[httpx.Response]:
    """Send a command that waits for its turn, and let it come to its handler."""
    till.turns[3].set()  # nobody is to come so far; whoever does must not wait
    before = len(till.executed)
    sent = asyncio.create_task(client.post("/in-turn", content="tea", headers=K1))

    async def is_executed() -> bool:
        return len(till.executed) > before

    await until(is_executed, "the command comes to its handler")
    return sent


async def test_a_lease_is_renewed_while_the_application_works(
    database: Database, till: Till
) -> None:
    till.open(till.app._sessions, lease=timedelta(seconds=1))
    transport = httpx.ASGITransport(till)
    async with httpx.AsyncClient(transport=transport, base_url="http://till") as client:
        first = asyncio.create_task(client.post("/slow", content="tea", headers=K1))
        await till.entered.wait()
        before = await database.scalar("SELECT lease_until FROM idempotency")

        async def renewed() -> bool:
            return bool(await database.scalar("SELECT lease_until FROM idempotency") > before)

        await until(renewed, "a later end of the lease")
        till.proceed.set()
        assert (await first).status_code == 201


async def test_reading_and_commands_without_a_key_pass(
    till: Till, client: httpx.AsyncClient
) -> None:
    assert (await client.get("/sale", headers=K1)).text == "sold 1"
    assert (await client.post("/sale")).text == "sold 2"


async def test_a_malformed_key_is_refused(till: Till, client: httpx.AsyncClient) -> None:
    answer = await client.post("/sale", headers={"Idempotency-Key": "two words"})

    assert (answer.status_code, till.executed) == (400, [])


async def refusal(till: Till, headers: dict[str, str], **options: Any) -> httpx.Response:
    """Send a command under a policy."""
    till.open(till.app._sessions, **options)
    transport = httpx.ASGITransport(till)
    async with httpx.AsyncClient(transport=transport, base_url="http://till") as client:
        return await client.post("/sale", content="tea", headers=headers)


async def test_a_missing_key_is_refused_where_it_is_required(till: Till) -> None:
    answer = await refusal(till, {}, required=True)

    assert (answer.status_code, till.executed) == (400, [])
    assert answer.json()["type"].endswith("idempotency-key-missing")


async def test_a_body_over_the_limit_is_refused(database: Database, till: Till) -> None:
    answer = await refusal(till, K1, request_limit=2)

    assert (answer.status_code, till.executed) == (413, [])
    assert answer.json()["type"].endswith("request-too-large")
    assert await database.scalar("SELECT count(*) FROM idempotency") == 0


async def test_a_key_over_the_quota_is_refused_and_an_old_one_is_answered(till: Till) -> None:
    first = await refusal(till, K1, quota=1)
    beyond = await refusal(till, {"Idempotency-Key": "k-2"}, quota=1)
    again = await refusal(till, K1, quota=1)

    assert (first.status_code, beyond.status_code, again.text) == (201, 429, first.text)
    assert beyond.json()["type"].endswith("too-many-keys")
    assert till.executed == ["tea"]


@pytest.mark.parametrize("missing", ["principal", "authorize"])
async def test_without_resolvers_it_refuses_to_start(till: Till, missing: str) -> None:
    given: dict[str, Any] = {"principal": lambda _: "ada", "authorize": lambda _: True}
    del given[missing]

    with pytest.raises(InvalidConfig, match=missing):
        IdempotencyMiddleware(till.app, sessions=till.app._sessions, **given)


async def test_an_unknown_caller_gets_no_answer(till: Till, client: httpx.AsyncClient) -> None:
    answer = await client.post("/sale", headers=K1 | {"X-User": ""})

    assert answer.status_code == 500
    assert answer.json()["type"].endswith("principal-missing")
    assert till.executed == []
