"""A statement for which SQLite has no room left: it may roll back the whole transaction by itself."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

_ROWS = 10_000


async def run_out_of_room(session: AsyncSession) -> None:
    """Write until the file may not grow; later statements find it as large as ever."""
    pages = await session.scalar(text("PRAGMA page_count"))
    await session.execute(text("CREATE TABLE IF NOT EXISTS large (content)"))
    await session.execute(text(f"PRAGMA max_page_count = {pages + 20}"))
    try:
        for _ in range(_ROWS):
            await session.execute(text("INSERT INTO large VALUES (zeroblob(500))"))
    finally:
        await session.execute(text("PRAGMA max_page_count = 1000000"))
