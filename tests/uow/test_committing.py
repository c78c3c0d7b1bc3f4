"""A COMMIT that is given up at the very moment at which it is answered."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pillarbox.uow import committing


class Session:
    """A session whose caller is cancelled before it can hear that the commit is done."""

    def __init__(self, driver: object) -> None:
        self._driver = driver
        self.caller: asyncio.Task[None] | None = None

    async def connection(self) -> Any:
        async def raw() -> Any:
            return SimpleNamespace(driver_connection=self._driver)

        return SimpleNamespace(dialect=SimpleNamespace(name="postgresql"), get_raw_connection=raw)

    async def commit(self) -> None:
        assert self.caller is not None
        asyncio.get_running_loop().call_soon(self.caller.cancel)


async def test_a_commit_that_is_answered_leaves_its_connection_to_the_pool() -> None:
    ended: list[str] = []
    session: Any = Session(SimpleNamespace(terminate=lambda: ended.append("terminated")))
    session.caller = asyncio.create_task(committing.commit(session))

    with pytest.raises(asyncio.CancelledError):
        await session.caller

    assert ended == []
