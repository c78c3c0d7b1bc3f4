"""What counts as reading: a unit of work that is not committed leaves nothing else behind."""

from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Executable,
    Integer,
    Select,
    String,
    case,
    column,
    func,
    insert,
    lambda_stmt,
    literal_column,
    select,
    table,
    tablesample,
    text,
    union,
    values,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by, array
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import aliased
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.functions import GenericFunction
from sqlalchemy.util import greenlet_spawn

from pillarbox import SQLAlchemyUnitOfWork
from pillarbox.errors import UnitOfWorkError
from pillarbox.uow import functions
from pillarbox.uow.functions import PURE
from pillarbox.uow.joining import joined_transaction
from pillarbox.uow.reading import only_reads, told
from tests.support.database import Database, on, on_postgres
from tests.support.orders import Order
from tests.uow.test_joining import place
from tests.uow.test_restarting import OWNERS, RAISING, Owner, owner

__all__ = ["owner"]

EVERYWHERE = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
ORDERS = select(Order.id)


class Shouted(GenericFunction[str]):
    """A function of the application's own."""

    type = String()
    name = "upper"
    inherit_cache = True
    _register = False


class Odd(ColumnElement[str]):
    """An expression of the application's own, which may become anything."""

    type = String()
    inherit_cache = True


@compiles(Odd)
def _odd(element: Odd, compiler: Any, **options: Any) -> str:
    return "reserve('o-1')"


class Named(Column[Any]):
    """A column of a class of the application's own."""

    inherit_cache = True


ODD_TABLE = table("shelves", Named("id", String))

READS = {
    "an entity": select(Order),
    "an alias": select(aliased(Order)),
    "a lock": ORDERS.with_for_update(),
    "a union": union(ORDERS, ORDERS),
    "a column of one's own class": select(ODD_TABLE.c.id),
    "rows of values": select(values(column("id", Integer), name="v").data([(1,), (2,)])),
    "generic functions": select(func.count(), func.max(Order.total), func.coalesce(Order.id, "")),
    "a window": select(func.lag(Order.total).over(order_by=func.lower(Order.id))),
    "a filter": select(func.count().filter(func.length(Order.id) > 1)),
    "a sample": select(tablesample(Order.__table__, func.bernoulli(1)).c.id),
    "a choice": select(case((func.mod(Order.total, 2) == 0, 1), else_=func.random())),
    "an order inside": select(func.array_agg(aggregate_order_by(Order.id, Order.total))),
    "a table of a function": select(func.unnest(array([1, 2])).table_valued("id")),
    "its catalog named": select(func.pg_catalog.lower(Order.id)),
    "capitals": select(func.JSON_AGG(Order.id)),
    **{
        f"{name}()": select(getattr(func, name)(Order.id))
        for name in (
            "json_agg", "jsonb_agg", "json_build_object", "jsonb_build_object", "string_agg",
            "array_length", "unnest", "generate_series", "regexp_replace", "concat_ws", "md5",
            "age", "mod", "lag", "lead", "first_value", "ntile", "array_agg", "to_tsquery",
            "gen_random_uuid", "starts_with", "date_trunc", "nextval",
        )
    },
    **{
        words: ORDERS.where(text(words))
        for words in (
            "status IN ('NEW', 'OLD')",
            "total > 0 AND (status = 'NEW' OR status = 'OLD')",
            "NOT (total > 0)",
            "total = ANY (ARRAY[1, 2])",
            "EXISTS (SELECT 1 FROM orders WHERE (total) > (0))",
            "total > coalesce(length(status), 1)",
            "Pg_Catalog.Lower (status) = 'new'",
            "CAST(total AS numeric(10, 2)) > 1",
            "total IN (SELECT (x.n) FROM generate_series(1, 3) AS x(n))",
            "total IN (WITH RECURSIVE c(n) AS (VALUES (1)) SELECT n FROM c)",
            "status IN ('delete')",
            "count(*) FILTER (WHERE total > 0) OVER (PARTITION BY (status)) > 1",
        )
    },
    "a literal": select(literal_column("upper('a')"), literal_column("count(*)")),
}  # fmt: skip

WRITES = {
    "nothing": None,
    "an insert": insert(Order).values(id="o-1"),
    "a whole text": text("SELECT 1"),
    "a whole text with columns": RAISING,
    "a function": select(func.reserve("o-1")),
    "a function in a label": select(func.reserve("o-1").label("b")),
    "a function in a condition": ORDERS.where(func.reserve(Order.id)),
    "a function of a schema": select(func.shop.lower("o-1")),
    "a setting": select(func.set_config("a", "b", True)),
    "a lock that stays": select(func.pg_advisory_xact_lock(1)),
    "a notice": select(func.pg_notify("a", "b")),
    "a query in a text": select(func.query_to_xml("DELETE FROM orders", True, True, "")),
    "a function of one's own class": select(Shouted("a")),
    "an expression of one's own class": select(Odd()),
    "an operator with a call": select(Order.id.op("|| reserve(1) ||")("a")),
    "a value that is a call": select(
        values(column("id", Integer), name="v").data([(func.reserve(),)])
    ),
    "a scalar value that is a call": select(
        values(column("id", Integer), name="v").data([(func.reserve(),)]).scalar_values()
    ),
    "a prefix": ORDERS.prefix_with("reserve(1),"),
    "a suffix": ORDERS.suffix_with("UNION SELECT reserve(1)"),
    "a hint": ORDERS.with_statement_hint("UNION SELECT reserve(1)"),
    "a hint on a table": ORDERS.with_hint(Order, "reserve(1)"),
    "a statement beside": ORDERS.add_cte(insert(Order).values(id="o-1").cte()),
    "a lambda": lambda_stmt(lambda: ORDERS),
    **{
        words: ORDERS.where(text(words))
        for words in (
            "reserve(1)",
            "a IN (reserve (1))",
            "shop.lower(status) = 'a'",
            '"lower"(status) = status',
            "lower(reserve(status)) = status",
            "lower/* */(status) = status",
            "reserve -- it\n (1) = 1",
            "total IN (SELECT 1); DELETE FROM orders",
            "total IN (WITH d AS (DELETE FROM orders RETURNING id) SELECT 1)",
            "total IN (WITH d AS (SELECT 1) INSERT INTO orders SELECT * FROM d)",
        )
    },
    "a literal": select(literal_column("reserve('a')")),
}  # fmt: skip


@pytest.mark.parametrize("statement", READS.values(), ids=READS)
def test_what_reads(statement: Select[Any]) -> None:
    """Most of them counted as writing, which made of every command a server error."""
    assert only_reads(statement, "postgresql")


@pytest.mark.parametrize("statement", WRITES.values(), ids=WRITES)
def test_what_may_write(statement: Executable) -> None:
    assert not only_reads(statement, "postgresql")


@pytest.mark.parametrize(
    "name",
    ["group_concat", "date", "datetime", "json_group_array", "json_each", "strftime", "ifnull"],
)
def test_what_reads_on_sqlite(name: str) -> None:
    statement = select(getattr(func, name)(Order.id)).where(text(f"{name} (status) IN (1)"))

    assert only_reads(statement, "sqlite")


def test_an_expression_of_ones_own_class_may_write_in_any_dress() -> None:
    annotated = Shouted("a")._annotate({"seen": True})

    assert type(annotated).__module__.startswith("sqlalchemy.")
    assert not only_reads(select(annotated), "postgresql")


class Mute(ColumnElement[str]):
    """An expression that only its database can have in words."""

    type = String()
    inherit_cache = True


@compiles(Mute)
def _mute(element: Mute, compiler: Any, **options: Any) -> str:
    raise LookupError(element)


def test_a_statement_without_words_is_told_by_its_kind() -> None:
    assert told(select(Mute())) == "of the statement `Select`"
    assert told(ORDERS) == "of the statement `SELECT orders.id FROM orders`"
    assert len(told(text("SELECT " + "reserve(1), " * 100))) < 250


@on_postgres
async def test_the_functions_that_only_compute_are_there_and_none_is_called_volatile_but_these(
    database: Database,
) -> None:
    volatile = await database.scalar(
        "SELECT string_agg(DISTINCT proname, ' ') FROM pg_proc"
        " WHERE pronamespace = 'pg_catalog'::regnamespace AND provolatile = 'v'"
        " AND proname = ANY(string_to_array(:names, ' '))",
        {"names": " ".join(PURE["postgresql"])},
    )

    assert set(volatile.split()) == {
        "array_sample", "array_shuffle", "bernoulli", "clock_timestamp", "currval", "gen_random_uuid", "lastval",
        "nextval", "pg_blocking_pids", "pg_current_wal_lsn", "pg_database_size", "pg_indexes_size",
        "pg_is_in_recovery", "pg_partition_ancestors", "pg_partition_tree", "pg_relation_size",
        "pg_sleep", "pg_sleep_for", "pg_sleep_until", "pg_table_size", "pg_tablespace_size",
        "pg_total_relation_size", "pg_xact_commit_timestamp", "pg_xact_status", "random",
        "random_normal", "system", "timeofday", "txid_status", "uuidv4", "uuidv7",
    }  # fmt: skip


@on("sqlite+aiosqlite")
async def test_all_functions_of_sqlite_only_compute_but_these(database: Database) -> None:
    found = await database.scalar("SELECT group_concat(DISTINCT name) FROM pragma_function_list")

    assert {name for name in found.split(",") if name.isidentifier()} - PURE["sqlite"] <= {
        "fts3_tokenizer", "fts5", "fts5_source_id", "load_extension", "match", "optimize", "regexp",
        "rtreecheck", "rtreedepth", "rtreenode", "sqlite_log",
    }  # fmt: skip


@pytest.mark.parametrize("names", [functions._POSTGRESQL, functions._SQLITE])
def test_the_lists_are_sorted(names: str) -> None:
    assert names.split() == sorted(set(names.split()))


@EVERYWHERE
async def test_what_a_text_with_columns_wrote_is_undone_with_its_unit_of_work(
    database: Database,
) -> None:
    """It counted as reading: nobody had committed it, and the owner did."""
    async with database.sessions() as session:
        session.add(Order(id="o-1", total=1))
        async with joined_transaction(session), SQLAlchemyUnitOfWork(database.sessions) as uow:
            assert (await uow.session.scalars(RAISING)).all() == ["o-1"]
        await session.commit()

    assert await database.scalar("SELECT total FROM orders") == 1


@EVERYWHERE
async def test_a_select_that_computes_stands_around_what_is_armed(
    database: Database, owner: Owner
) -> None:
    known = (
        select(func.count(), func.max(Order.total), func.upper(func.coalesce(Order.status, "")))
        .where(text("total > 0 AND (status IN ('NEW', 'OLD'))"))
        .group_by(Order.status)
    )
    async with joined_transaction(owner), SQLAlchemyUnitOfWork(database.sessions) as reader:
        await reader.session.execute(known)
        await place(database, "o-1")
    await owner.commit_all()

    assert await database.order_ids() == ["o-1", OWNERS]


async def add_function(database: Database, session: AsyncSession) -> None:
    """Add a function of the application's own, for as long as this transaction."""
    if database.is_postgres:
        made = "CREATE FUNCTION shout(text) RETURNS text LANGUAGE sql AS 'SELECT upper($1)'"
        await session.execute(text(made))
        return
    driver = (await (await session.connection()).get_raw_connection()).driver_connection
    assert driver is not None
    await driver.create_function("shout", 1, str.upper)


@EVERYWHERE
@pytest.mark.parametrize(
    "statement",
    [select(func.shout("a")), select(Shouted("a")), select(text("shout('a')"))],
    ids=["function", "own class", "text"],
)
async def test_a_select_that_calls_what_nobody_knows_counts_as_writing_and_is_named(
    database: Database, statement: Executable
) -> None:
    async def handle() -> None:
        async with database.sessions() as session:
            await add_function(database, session)
            async with joined_transaction(session), SQLAlchemyUnitOfWork(database.sessions) as uow:
                await uow.session.execute(statement)
                await place(database, "o-1")

    with pytest.raises(UnitOfWorkError, match=r"both are undone") as refused:
        await handle()

    assert "counts as a writer because of the statement `SELECT " in str(refused.value)
    assert await database.order_ids() == []


@EVERYWHERE
async def test_one_that_has_flushed_is_named_too(database: Database, owner: Owner) -> None:
    async def handle() -> None:
        async with joined_transaction(owner), SQLAlchemyUnitOfWork(database.sessions) as writer:
            writer.session.add(Order(id="o-1"))
            await writer.session.flush()
            await place(database, "o-2")

    with pytest.raises(UnitOfWorkError, match="it has flushed, or was asked for its connection"):
        await handle()
    await greenlet_spawn(owner.close)
