from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from pillarbox import MemoryMessageBus, Pillarbox
from pillarbox.testing import BoxUnderTest
from tests.support.database import Database, database, databases
from tests.support.orders import Base
from tests.testing.shop import Shop

__all__ = ["database", "databases"]

Count = Callable[[type[Any]], Awaitable[int]]


@pytest.fixture
async def shop(database: Database) -> AsyncIterator[Shop]:
    async with database.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    url = database.url.render_as_string(hide_password=False)
    box = Pillarbox(url, MemoryMessageBus(), service="orders", environ={})
    yield Shop(box, projector=True, consumers=True)
    await box.engine.dispose()


@pytest.fixture
def pillarbox_app(shop: Shop) -> Pillarbox:
    return shop.box


@pytest.fixture
async def client(shop: Shop, pillarbox: BoxUnderTest) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(shop.app)
    async with (
        shop.app.router.lifespan_context(shop.app),
        httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
    ):
        yield client


@pytest.fixture
def count(pillarbox: BoxUnderTest) -> Count:
    async def count(kind: type[Any]) -> int:
        async with pillarbox.box.session_factory() as session:
            return int(await session.scalar(select(func.count()).select_from(kind)) or 0)

    return count
