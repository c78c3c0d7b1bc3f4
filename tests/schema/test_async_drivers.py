"""The same functions serve asynchronous engines, through `run_sync`."""

from functools import partial

import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from pillarbox.database import async_url
from pillarbox.schema import SchemaOptions, apply, check
from pillarbox.schema.partitions import DAY
from pillarbox.schema.start_up import start_up_check


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_postgresql_through_each_driver(database_url: str, driver: str) -> None:
    options = SchemaOptions(schema="shop", tenancy=True, partitioned=True, ahead=10 * DAY)
    url = async_url(database_url.replace("postgresql", f"postgresql+{driver}"))
    engine = create_async_engine(url, poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(apply, options)

    async with engine.begin() as connection:
        findings = await connection.run_sync(check, options)
        await connection.exec_driver_sql("SET LOCAL ROLE pillarbox_app")
        strict = partial(start_up_check, tenancy=True, allow_unsafe_role=False, schema="shop")
        warnings = await connection.run_sync(strict)

    assert url.drivername == f"postgresql+{driver}"
    assert (findings, warnings) == ([], [])


async def test_sqlite(tmp_path: object) -> None:
    engine = create_async_engine(async_url(f"sqlite:///{tmp_path}/shop.db"), poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(apply)

    async with engine.begin() as connection:
        findings = await connection.run_sync(check)
        lax = partial(start_up_check, tenancy=False, allow_unsafe_role=False)
        warnings = await connection.run_sync(lax)

    assert (findings, warnings) == ([], [])
