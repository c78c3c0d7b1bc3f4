"""Customers of three tenants: they order, and ask again under the same key until they are answered."""

import asyncio
import random
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

import httpx

TENANTS: Final = ("acme", "globex", "initech")
STOCK: Final = {"lamp": 1_000_000, "chair": 1_000_000, "table": 1_000_000, "rarity": 20}
SHELVES: Final = {(tenant, product): STOCK[product] for tenant in TENANTS for product in STOCK}
_PLENTY: Final = ("lamp", "chair", "table")
_AGAIN_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Request:
    """An order that a customer wants, under the key that they gave it."""

    tenant: str
    user: str
    key: str
    path: str
    body: dict[str, Any]

    @property
    def headers(self) -> dict[str, str]:
        return {"X-Tenant": self.tenant, "X-User": self.user, "Idempotency-Key": self.key}


@dataclass(frozen=True, slots=True)
class Accepted:
    """An order that was answered with 201."""

    request: Request
    order_id: str


@dataclass(slots=True)
class Customers:
    """What the customers asked for, and what they were told."""

    client: httpx.AsyncClient
    accepted: list[Accepted] = field(default_factory=list)
    repeated: int = 0
    strange: list[str] = field(default_factory=list)

    def told(self) -> dict[tuple[str, str], str]:
        """Return the customer of each order that was answered, by tenant and order id."""
        return {(each.request.tenant, each.order_id): each.request.user for each in self.accepted}

    async def order_on(
        self, tenant: str, chance: random.Random, pause: float, ended: asyncio.Event
    ) -> None:
        """Order again and again until the demo ends."""
        while not ended.is_set():
            request = wanted(tenant, chance)
            order_id = await self._answered(request)
            self.accepted.append(Accepted(request, order_id))
            await asyncio.sleep(pause * chance.uniform(0.5, 1.5))

    async def repeat(self, chance: random.Random, count: int) -> int:
        """Send requests that were answered before once more; all must get the same order."""
        for known in chance.sample(self.accepted, min(count, len(self.accepted))):
            self._compare(known, await self._answered(known.request))
        return count

    async def ask_at_once(self, tenant: str, chance: random.Random, times: int) -> int:
        """Send a new request several times in the same moment, as impatient clients do."""
        request = wanted(tenant, chance)
        answers = await asyncio.gather(*(self._answered(request) for _ in range(times)))
        first = Accepted(request, answers[0])
        self.accepted.append(first)
        for order_id in answers[1:]:
            self._compare(first, order_id)
        return times - 1

    def _compare(self, known: Accepted, order_id: str) -> None:
        self.repeated += 1
        if order_id != known.order_id:
            self.strange.append(f"{known.request.key}: {known.order_id} and {order_id}")

    async def _answered(self, request: Request) -> str:
        """Ask until the answer is 201; whatever happens in between, the key stays the same."""
        while True:
            try:
                answer = await self.client.post(
                    request.path, json=request.body, headers=request.headers
                )
            except httpx.TransportError:
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if answer.status_code == HTTPStatus.CREATED:
                order_id: str = answer.json()["order_id"]
                return order_id
            if answer.status_code < HTTPStatus.INTERNAL_SERVER_ERROR and (
                answer.status_code != HTTPStatus.CONFLICT
            ):
                raise RuntimeError(f"an order was refused: {answer.text}")
            await asyncio.sleep(_AGAIN_SECONDS)


def wanted(tenant: str, chance: random.Random) -> Request:
    """Think of an order: most can be had, some are sold out, some cost too much."""
    user = f"demo-user-{chance.randint(1, 50)}"
    draw = chance.random()
    if draw < 0.3:  # noqa: PLR2004 - three in ten
        items = [
            {"product_id": product, "quantity": chance.randint(1, 3), "price": "19.90"}
            for product in chance.sample(_PLENTY, 2)
        ]
        return Request(tenant, user, uuid4().hex, "/orders", {"user_id": user, "items": items})
    body = {
        "user_id": user,
        "product_id": "rarity" if draw < 0.4 else chance.choice(_PLENTY),  # noqa: PLR2004
        "quantity": chance.randint(1, 3),
        "total_amount": "1500.00" if draw > 0.95 else "49.90",  # noqa: PLR2004
    }
    return Request(tenant, user, uuid4().hex, "/api/orders", body)


async def fill_stock(client: httpx.AsyncClient) -> None:
    """Put the products on the shelves of every tenant."""
    for (tenant, product), available in SHELVES.items():
        answer = await client.put(
            f"/stock/{product}", json={"available": available}, headers={"X-Tenant": tenant}
        )
        answer.raise_for_status()
