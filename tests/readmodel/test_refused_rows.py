"""Rows that the live table does not take end a rebuild, which says so, and how to go on."""

from collections.abc import Sequence

import pytest
from sqlalchemy import (
    Column,
    ForeignKeyConstraint,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    delete,
    insert,
)

from pillarbox import Pillarbox
from pillarbox.bus.memory_subscription import MemorySubscription
from pillarbox.bus.subscription import Revoked
from pillarbox.errors import RebuildFailed
from pillarbox.event.incoming import Incoming
from pillarbox.readmodel.changes import Change, Upsert
from pillarbox.readmodel.checkpoint import Checkpoints
from pillarbox.readmodel.definition import ReadModel
from pillarbox.readmodel.definition import on as on_event
from pillarbox.readmodel.making import ReadModelRunner
from pillarbox.readmodel.rebuild import LogRebuild
from tests.readmodel.bank import QUICK, TOPIC, on_two
from tests.readmodel.rig import Opened, Rig
from tests.readmodel.test_subscription_rebuild import Odd
from tests.readmodel.test_turns import LIVE, rebuild
from tests.support.database import on_postgres
from tests.support.waiting import until

METADATA = MetaData()
KEY = ("tenant_id", "account_id")
REMEDY = (
    "change the constraint and call rebuild again, which goes on from there, or mend the method, call "
    "abandon and then rebuild, which begins with the first event"
)


def table(name: str, *constraints: UniqueConstraint) -> Table:
    key = [Column(column, String(64), primary_key=True) for column in KEY]
    return Table(name, METADATA, *key, Column("owner", String(64)), *constraints)


def referring_to(model: Table, **options: str | bool) -> Table:
    """Return a table with rows that refer to those of a model."""
    key = [Column(column, String(64), primary_key=True) for column in KEY]
    columns = [model.c[column] for column in KEY]
    reference = ForeignKeyConstraint(KEY, columns, **options)  # type: ignore[arg-type] # words of SQL
    return Table(f"{model.name}_note", METADATA, *key, reference)


class Owned(ReadModel):
    @on_event(Opened)
    def opened(self, event: Opened) -> Change:
        return Upsert(event.account_id, owner=event.owner)


class Late(
    Owned,
    name="late",
    table=table("late", UniqueConstraint("owner", deferrable=True, initially="DEFERRED")),
):
    """A model whose table is asked about at the commit."""


class Noted(Owned, name="noted", table=table("noted")):
    """A model to whose rows others refer."""


class Waited(Owned, name="waited", table=table("waited")):
    """A model to whose rows others refer, as they are at the commit."""


class Unique(Owned, name="unique", table=table("unique_owner", UniqueConstraint("owner"))):
    """A model whose table has a row for each owner."""


class Mended(Unique, name="unique", table=Unique.table):
    @on_event(Opened)
    def opened(self, event: Opened) -> Change:
        return Upsert(event.account_id, owner=f"{event.owner} of {event.account_id}")


NOTES = referring_to(Noted.table)
WAITED_NOTES = referring_to(Waited.table, deferrable=True, initially="DEFERRED")


@pytest.fixture
async def tables(rig: Rig) -> Rig:
    async with rig.database.engine.begin() as connection:
        # SQLite has no unique constraint that waits for the commit.
        has_all = rig.database.is_postgres
        made = [t for t in METADATA.sorted_tables if has_all or t is not Late.table]
        await connection.run_sync(lambda found: METADATA.create_all(found, tables=made))
        for found in reversed(made):
            await connection.execute(delete(found))
    return rig


async def refer(rig: Rig, notes: Table) -> None:
    async with rig.database.engine.begin() as connection:
        await connection.execute(insert(notes).values(tenant_id="default", account_id="a"))


@on_postgres
async def test_a_constraint_that_is_asked_at_the_commit_is_named_by_the_rebuild(
    tables: Rig,
) -> None:
    """The database's own error was once raised, out of the commit."""
    await tables.record(Opened("a", "ann"), Opened("b", "ann"))

    with pytest.raises(RebuildFailed, match=r"its rows are not taken by late: .*unique") as failed:
        await LogRebuild(Late(), tables.parts()).run()

    assert str(failed.value).endswith(REMEDY)


@on_postgres
async def test_an_event_whose_rows_are_refused_at_the_commit_holds_its_key_alone(
    tables: Rig,
) -> None:
    """It once ended the model for all tenants, and again whenever it was started."""
    await tables.record(
        Opened("a", "ann"), Opened("b", "bob"), Opened("c", "ann"), Opened("d", "dan")
    )
    runner = tables.runner(Late())

    async def is_tried_again() -> bool:
        await runner.drain()
        return bool((await tables.held())["attempts"] >= 2)

    await until(is_tried_again, "the held event has been tried again")

    assert [key[1] for key in await tables.rows(Late.table)] == ["a", "b", "d"]
    held = await tables.held()
    assert (held["key"], held["error_class"]) == ("c", "IntegrityError")


@on_postgres
async def test_rows_that_others_refer_to_are_named_by_the_rebuild(tables: Rig) -> None:
    """They cannot be deleted, and the database's own error said so."""
    await tables.record(Opened("a", "ann"))
    await tables.runner(Noted()).drain()
    await refer(tables, NOTES)

    with pytest.raises(RebuildFailed, match=r"not taken by noted: .*foreign key") as failed:
        await LogRebuild(Noted(), tables.parts()).run()

    assert str(failed.value).endswith(REMEDY)


@on_postgres
async def test_rows_that_others_refer_to_at_the_commit_are_replaced(tables: Rig) -> None:
    await tables.record(Opened("a", "ann"))
    await tables.runner(Waited()).drain()
    await refer(tables, WAITED_NOTES)

    await LogRebuild(Waited(), tables.parts()).run()

    assert list(await tables.rows(Waited.table)) == [("default", "a")]


def following(rig: Rig, bus: Odd, model: type[ReadModel]) -> ReadModelRunner:
    return Pillarbox(rig.database.engine, bus, service="bank", environ={}).read_model(
        model, topics=[TOPIC], config=QUICK
    )


def open_accounts(bus: Odd, accounts: str) -> None:
    for account in accounts:
        body = f'{{"account_id":"{account}","owner":"ann"}}'.encode()
        told = {"event_id": account, "event_type": "Opened"}
        bus.put(Incoming(TOPIC, account, told, body, "application/json"))


async def owners(rig: Rig) -> dict[str, str]:
    return {key[1]: row["owner"] for key, row in (await rig.rows(Unique.table)).items()}


@on_two
async def test_a_rebuild_from_a_subscription_that_was_refused_is_given_up_and_begins_anew(
    tables: Rig,
) -> None:
    """It was a dead end: to call it again met the same rows, and it was not to be given up."""
    bus = Odd()
    open_accounts(bus, "ab")
    await following(tables, bus, Unique).drain()
    first = await owners(tables)
    for model in (Unique, Mended):
        with pytest.raises(RebuildFailed, match="its rows are not taken by unique_owner") as failed:
            await following(tables, bus, model).rebuild()
        assert str(failed.value).endswith(REMEDY)
    mended = following(tables, bus, Mended)

    await mended.abandon()
    before = await owners(tables)
    await mended.rebuild()
    rebuilt = await owners(tables)
    open_accounts(bus, "c")
    await mended.drain()

    assert before == first
    assert list(first.values()) == ["ann"]
    assert rebuilt == {"a": "ann of a", "b": "ann of b"}
    assert await owners(tables) == {**rebuilt, "c": "ann of c"}
    assert await tables.count("unique_owner_shadow") == 0
    generations = "SELECT min(generation) FROM readmodel_member WHERE name = 'unique'"
    assert await tables.database.scalar(generations) == 3


@on_two
async def test_the_number_of_a_rebuild_that_was_given_up_is_not_had_again(rig: Rig) -> None:
    """Its consumer has taken messages, and the broker would not give them to the next one."""
    made = rebuild(rig)
    async with rig.parts().transactions.begin(None) as session:
        await Checkpoints().begin(session, LIVE)
    numbers = []
    for _ in range(3):
        numbers.append((await made.begin()).generation)
        await made.abandon()
        await made.abandon()

    assert numbers == [2, 3, 4]
    assert await rig.count("readmodel") == 1


@on_two
async def test_a_rebuild_that_is_given_up_while_it_runs_ends_and_the_model_goes_on(
    tables: Rig,
) -> None:
    bus = Odd()
    open_accounts(bus, "a")
    model = following(tables, bus, Unique)
    await model.drain()

    class GivenUp(MemorySubscription):
        async def start(self, revoked: Revoked) -> Sequence[str]:
            bus.member = MemorySubscription
            await model.abandon()
            return await super().start(revoked)

    bus.member = GivenUp
    with pytest.raises(RebuildFailed, match="or it was given up; the live table is untouched"):
        await model.rebuild()
    await model.drain()

    assert await owners(tables) == {"a": "ann"}
    assert await tables.count("readmodel") == 1
    assert await tables.count("unique_owner_shadow") == 0
