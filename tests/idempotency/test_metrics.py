"""What becomes of each command is counted."""

import asyncio

import httpx
import pytest

from pillarbox.idempotency.metrics import IdempotencyMetrics
from tests.idempotency.conftest import Make, client_of
from tests.idempotency.shop import Shop
from tests.support.database import Database, on

pytestmark = on("postgres18+asyncpg", "sqlite+aiosqlite")

ORDER = {"id": "o-1", "total": 7}
K1 = {"Idempotency-Key": "k-1"}


def counted(metrics: IdempotencyMetrics) -> dict[str, float]:
    """Return the outcomes that happened."""
    found = {
        dict(sample.labels)["outcome"]: sample.value
        for sample in metrics.snapshot()
        if sample.name == "pillarbox_idempotency_requests_total"
    }
    return {name: value for name, value in found.items() if isinstance(value, int) and value}


async def post(client: httpx.AsyncClient, path: str, key: str, **more: object) -> int:
    headers = {"Idempotency-Key": key}
    return (await client.post(path, json=ORDER | more, headers=headers)).status_code


@pytest.mark.parametrize(
    ("requests", "outcomes"),
    [
        ([("/orders", "k")], {"executed": 1}),
        ([("/orders", "k")] * 3, {"executed": 1, "replayed": 2}),
        ([("/answers/http-404", "k")] * 2, {"executed": 1, "replayed": 1}),
        ([("/answers/large", "k")] * 2, {"executed": 1, "answer_not_kept": 1}),
        ([("/answers/raises", "k")] * 2, {"undone": 2}),
        ([("/orders", "two words")], {"invalid": 1}),
    ],
)
async def test_each_outcome_is_counted(
    make: Make, requests: list[tuple[str, str]], outcomes: dict[str, int]
) -> None:
    metrics = IdempotencyMetrics()
    async with client_of(make(observer=metrics)) as client:
        for path, key in requests:
            await post(client, path, key)

    assert counted(metrics) == outcomes


async def test_refusals_are_told_apart(database: Database, make: Make) -> None:
    metrics = IdempotencyMetrics()
    shop: Shop = make(observer=metrics, quota=1)
    async with client_of(shop) as client:
        await post(client, "/orders", "k-1")
        await post(client, "/orders", "k-1", total=8)
        await post(client, "/orders", "k-2")
        shop.revoked.add("ada")
        await post(client, "/orders", "k-1")

    assert counted(metrics) == {"executed": 1, "mismatch": 1, "over_quota": 1, "refused": 1}


async def test_a_request_that_comes_too_early_is_counted(make: Make) -> None:
    metrics = IdempotencyMetrics()
    shop: Shop = make(observer=metrics)
    async with client_of(shop) as client:
        first = asyncio.create_task(client.post("/slow", json=ORDER, headers=K1))
        await shop.entered.wait()
        await client.post("/slow", json=ORDER, headers=K1)
        shop.proceed.set()
        await first

    assert counted(metrics) == {"executed": 1, "in_progress": 1}


async def test_requests_without_a_key_are_not_counted(make: Make) -> None:
    metrics = IdempotencyMetrics()
    async with client_of(make(observer=metrics)) as client:
        await client.post("/orders", json=ORDER)

    assert counted(metrics) == {}
