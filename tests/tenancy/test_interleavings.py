"""2,000 random transactions of ten tenants over two connections: never a foreign row."""

from typing import Any

import pytest

from pillarbox.servers import PgBouncer
from tests.tenancy.interleavings import TENANTS, Interleavings
from tests.tenancy.wall import Wall, Walls, opened

SEED = 20_261_116
ALL = {"write", "read", "roll_back", "fail", "fail_in_database", "stranger", "cancelled"}

# PgBouncer hands each transaction to any server connection, so that nothing may be prepared under
# a name on one and executed on another. psycopg is told so in a word. SQLAlchemy prepares every
# statement with asyncpg: its cache and asyncpg's own are off, and the name is the empty one, which
# the next statement replaces.
THROUGH_PGBOUNCER: dict[str, dict[str, Any]] = {
    "psycopg": {"prepare_threshold": None},
    "asyncpg": {
        "statement_cache_size": 0,
        "prepared_statement_cache_size": 0,
        "prepared_statement_name_func": lambda: "",
    },
}


async def check(wall: Wall, count: int) -> None:
    before = len(wall.rows("SELECT 1 FROM shop_orders"))
    interleavings = Interleavings(wall, SEED)

    await interleavings.run(count)

    assert interleavings.leaks == [], f"seed {SEED}"
    assert interleavings.ended.keys() == ALL
    assert len(wall.rows("SELECT 1 FROM shop_orders")) > before + count // 5
    assert wall.rows("SELECT DISTINCT tenant_id FROM shop_orders WHERE id > 100 ORDER BY 1") == [
        (name,) for name in TENANTS
    ]
    strayed = "SELECT 1 FROM outbox JOIN shop_orders o ON o.id::text = key AND o.tenant_id <> "
    assert wall.rows(strayed + "outbox.tenant_id") == []


@pytest.mark.parametrize(
    ("wall", "count"),
    [("postgres18+asyncpg", 2000), ("postgres15+psycopg", 400)],
    indirect=["wall"],
)
async def test_two_connections_never_show_one_tenant_the_rows_of_another(
    wall: Wall, count: int
) -> None:
    async with opened(wall.url, wall.admin, pool_size=2, max_overflow=0) as narrow:
        await check(narrow, count)


@pytest.mark.parametrize(("driver", "count"), [("psycopg", 2000), ("asyncpg", 400)])
async def test_pgbouncer_in_transaction_mode_never_shows_one_tenant_the_rows_of_another(
    walls: Walls, narrow_bouncer: PgBouncer, driver: str, count: int
) -> None:
    async with walls.open(f"postgres18+{driver}") as wall:
        through = wall.url.set(port=narrow_bouncer.port)
        options = {"connect_args": THROUGH_PGBOUNCER[driver], "pool_size": 8}
        async with opened(through, wall.admin, **options) as behind:
            await check(behind, count)
