"""A statement that code of a user gives up: the connection goes with it."""

import asyncio
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

_SLOW: Final = {
    "postgresql": "SELECT pg_sleep(60)",
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000) "
    "SELECT count(*) FROM n",
}


async def give_up(session: AsyncSession) -> None:
    """Do what code does that has a limit of its own for a statement."""
    slow = text(_SLOW[session.get_bind().dialect.name])
    async with asyncio.timeout(0.05):
        await session.execute(slow)
