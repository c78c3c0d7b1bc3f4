"""The cases of the IETF draft "The Idempotency-Key HTTP Header Field", as requests and answers."""

from typing import Any, NamedTuple

import pytest
from sqlalchemy import text

from tests.idempotency.conftest import Make, client_of
from tests.support.database import Database, on

pytestmark = on("postgres18+asyncpg")

TEA, COFFEE = {"id": "tea", "total": 1}, {"id": "coffee", "total": 2}
EXPIRE = "expire"


class Sent(NamedTuple):
    """A request, and what it must get: a status, and whether that is a repetition."""

    status: int
    key: str | None = '"k"'
    path: str = "/orders"
    body: Any = TEA
    method: str = "POST"
    is_replay: bool = False


DONE, REPEATED = Sent(201), Sent(201, is_replay=True)
CASES: dict[str, tuple[list[Sent | str], int]] = {
    "a first request is processed": ([DONE], 1),
    "a retry gets the result of the first": ([DONE, REPEATED, REPEATED], 1),
    "a string and a bare token are one key": ([DONE, REPEATED._replace(key="k")], 1),
    "parameters of the string mean nothing": ([DONE, REPEATED._replace(key='"k";v=1')], 1),
    "keys differ by case": ([DONE, Sent(201, key='"K"', body=COFFEE)], 2),
    "another payload under the key": ([DONE, Sent(422, body=COFFEE), REPEATED], 1),
    "another query under the key": ([DONE, Sent(422, path="/orders?fast=1"), REPEATED], 1),
    "another resource is independent": (
        [DONE, Sent(200, path="/orders/coffee", body=COFFEE, method="PUT")],
        2,
    ),
    "a required key is missing": ([Sent(400, key=None), DONE], 1),
    "a key that is no string": ([Sent(400, key='"open'), Sent(400, key="a b")], 0),
    "a list of keys": ([Sent(400, key='"a", "b"')], 0),
    "a safe method needs no key": ([Sent(200, None, "/orders/tea", None, "GET")], 1),
    "a client's error is its result": (
        [Sent(404, path="/answers/http-404"), Sent(404, path="/answers/http-404", is_replay=True)],
        1,
    ),
    "a request that was invalid can be mended": ([Sent(422, body={}), DONE], 1),
    "after a server error a retry is processed": (
        [Sent(500, path="/answers/raises"), Sent(500, path="/answers/raises")],
        2,
    ),
    "an expired key is a new one": ([DONE, EXPIRE, Sent(201, body=COFFEE)], 2),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_case_of_the_draft(database: Database, make: Make, case: str) -> None:
    sent, executed = CASES[case]
    shop = make(required=True)
    async with client_of(shop) as client:
        for request in sent:
            if isinstance(request, str):
                await expire(database)
                continue
            headers = {} if request.key is None else {"Idempotency-Key": request.key}
            answer = await client.request(
                request.method, request.path, json=request.body, headers=headers
            )

            assert answer.status_code == request.status
            assert ("idempotency-replayed" in answer.headers) is request.is_replay
            if answer.status_code in {400, 409} or "problem" in answer.headers["content-type"]:
                assert answer.json()["status"] == request.status

    assert len(shop.executed) == executed


async def expire(database: Database) -> None:
    async with database.engine.begin() as connection:
        await connection.execute(text("UPDATE idempotency SET expires_at = now()"))
