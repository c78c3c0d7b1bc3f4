"""The order and the keys of these tests, and the rows that keys leave behind."""

from datetime import UTC, datetime

from sqlalchemy import text, update

from pillarbox.idempotency.settings import IdempotencySettings
from pillarbox.idempotency.store import CommandStore
from pillarbox.idempotency.stores import store_for
from pillarbox.schema.tables import idempotency
from tests.idempotency.shop import Shop
from tests.support.database import Database

ORDER = {"id": "o-1", "total": 7}
K1 = {"Idempotency-Key": '"k-1"'}


async def keys(database: Database) -> int:
    counted: int = await database.scalar("SELECT count(*) FROM idempotency")
    return counted


def key(number: int) -> dict[str, str]:
    return {"Idempotency-Key": f"random-{number}"}


def store_of(shop: Shop) -> CommandStore:
    return store_for(shop.box.engine.dialect.name, IdempotencySettings())


async def seed(database: Database, count: int, user: str = "mallory") -> None:
    """Write rows as they stand after so many commands."""
    later = "now() + interval '1 day'" if database.is_postgres else "'2999-01-01 00:00:00.000000'"
    digits = "CAST(n AS text)"
    statement = (
        "INSERT INTO idempotency (tenant_id, principal, operation, key_hash, fingerprint, state, "
        "status_code, expires_at) "
        f"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {count}) "
        f"SELECT 'default', '{user}', 'POST /orders', {digits}, 'f', 'done', 201, {later} FROM c"
    )
    async with database.engine.begin() as connection:
        await connection.execute(text(statement))


async def expire(database: Database) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    async with database.engine.begin() as connection:
        await connection.execute(update(idempotency).values(expires_at=past))
