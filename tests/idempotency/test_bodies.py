"""Bodies of commands that are no JSON: forms and streams reach the endpoint whole, and are told apart."""

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import APIRouter, Request

from tests.idempotency.shop import Shop
from tests.support.database import on

pytestmark = on("postgres18+asyncpg")

K1 = {"Idempotency-Key": '"k-1"'}


@pytest.fixture
def upload(shop: Shop) -> None:
    """An endpoint that reads its body by itself, as one for forms and files does."""
    route_class = shop.box.idempotent_route(principal=lambda request: request.headers["x-user"])
    router = APIRouter(route_class=route_class)

    @router.post("/upload", status_code=201)
    async def take(request: Request) -> int:
        parts = [part async for part in request.stream()]
        shop.executed.append("upload")
        return sum(map(len, parts))

    shop.app.include_router(router)


def form(client: httpx.AsyncClient, content: bytes, boundary: str) -> httpx.Request:
    headers = K1 | {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    files = {"file": ("tea.txt", content, "application/octet-stream")}
    return client.build_request("POST", "/upload", files=files, headers=headers)


@pytest.mark.usefixtures("upload")
async def test_a_form_is_taken_once_and_another_one_under_its_key_is_refused(
    shop: Shop, client: httpx.AsyncClient
) -> None:
    content = b"\x00\xff" * 5_000
    sent = [(content, "b1"), (content, "b1"), (b"other", "b1"), (content, "b2")]
    requests = [form(client, *each) for each in sent]

    answers = [await client.send(request) for request in requests]

    # The last has the same fields; but bodies are compared byte for byte, and its boundary is new.
    assert [answer.status_code for answer in answers] == [201, 201, 422, 422]
    assert answers[1].content == answers[0].content == str(len(requests[0].read())).encode()
    assert shop.executed == ["upload"]


@pytest.mark.usefixtures("upload")
async def test_a_stream_is_the_same_request_however_it_is_cut(
    shop: Shop, client: httpx.AsyncClient
) -> None:
    async def cut(size: int) -> AsyncIterator[bytes]:
        whole = bytes(range(200))
        for start in range(0, len(whole), size):
            yield whole[start : start + size]

    first = await client.post("/upload", content=cut(7), headers=K1)
    again = await client.post("/upload", content=cut(50), headers=K1)

    assert (first.status_code, first.text) == (201, "200")
    assert (again.text, again.headers["idempotency-replayed"]) == ("200", "true")
    assert shop.executed == ["upload"]
