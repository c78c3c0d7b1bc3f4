"""A transaction that the server ends because it was idle too long is not the message's fault."""

import pytest
from sqlalchemy import text

from pillarbox.consumer.transactions import DatabaseAway, Transactions
from tests.consumer.rig import Shop
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg")


async def test_a_transaction_that_was_idle_too_long_is_the_database_s_doing(shop: Shop) -> None:
    async def ended(server_process: int) -> bool:
        return not await shop.count("pg_stat_activity", f"pid = {server_process}")

    with pytest.raises(DatabaseAway):  # noqa: PT012 - the commit at the end of the block raises
        async with Transactions(shop.database.sessions).begin(None) as session:
            own = await session.scalar(text("SELECT pg_backend_pid()"))
            await session.execute(text("SET LOCAL idle_in_transaction_session_timeout = '20ms'"))
            await until(lambda: ended(own), "the server has ended the transaction")
