from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.idempotency.shop import Shop, make_shop
from tests.support.database import Database, database, databases

__all__ = ["client", "database", "databases", "make", "shop"]

Make = Callable[..., Any]


@pytest.fixture
async def make(database: Database) -> AsyncIterator[Make]:
    """Open shops on the test's database, with settings of their own."""
    async with AsyncExitStack() as stack:

        def opened(**options: Any) -> Shop:
            shop = make_shop(database.url.render_as_string(hide_password=False), **options)
            stack.push_async_callback(shop.box.engine.dispose)
            return shop

        yield opened


@pytest.fixture
def shop(make: Make) -> Shop:
    made: Shop = make()
    return made


@asynccontextmanager
async def client_of(shop: Shop, user: str = "ada") -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(shop.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://shop", headers={"X-User": user}
    ) as client:
        yield client


@pytest.fixture
async def client(shop: Shop) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(shop) as opened:
        yield opened
