"""A rebuild whose rows the database refuses says which event, or which table, it was."""

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, UniqueConstraint, delete

from pillarbox.errors import RebuildFailed
from pillarbox.readmodel.changes import Change, Increment, Upsert
from pillarbox.readmodel.definition import ModelSession, ReadModel
from pillarbox.readmodel.definition import on as on_event
from pillarbox.readmodel.rebuild import LogRebuild
from tests.readmodel.bank import on_two
from tests.readmodel.rig import Deposited, Opened, Renamed, Rig

METADATA = MetaData()


def key() -> list[Column[str]]:
    return [Column(name, String(64), primary_key=True) for name in ("tenant_id", "account_id")]


class Stern(
    ReadModel,
    name="stern",
    table=Table("stern_account", METADATA, *key(), Column("cents", Integer, nullable=False)),
):
    @on_event(Opened)
    def opened(self, event: Opened) -> Change:
        return Upsert(event.account_id, cents=None)

    @on_event(Deposited)
    def deposited(self, event: Deposited) -> Change:
        return Increment(event.account_id, cents=event.cents)

    @on_event(Renamed)
    async def renamed(self, event: Renamed, model: ModelSession) -> None:
        del event, model


class Unique(
    ReadModel,
    name="unique",
    table=Table(
        "unique_account", METADATA, *key(), Column("owner", String(64)), UniqueConstraint("owner")
    ),
):
    @on_event(Opened)
    def opened(self, event: Opened) -> Change:
        return Upsert(event.account_id, owner=event.owner)


@pytest.fixture
async def tables(rig: Rig) -> Rig:
    async with rig.database.engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
        for model in (Stern, Unique):
            await connection.execute(delete(model.table))
            await connection.execute(delete(model.shadow))
    return rig


@on_two
async def test_a_rebuild_whose_write_fails_names_the_event(tables: Rig) -> None:
    """It once raised the database's own error, and nobody knew which of a batch's events it was."""
    ids = await tables.record(Deposited("a", 1), Opened("b", "bob"), Deposited("c", 1))

    with pytest.raises(RebuildFailed, match="at position 2 failed with IntegrityError") as failed:
        await LogRebuild(Stern(), tables.parts()).run()

    assert (failed.value.event_id, failed.value.position) == (ids[1], 2)
    assert "[parameters" not in str(failed.value)


@on_two
async def test_the_event_is_named_though_its_write_fails_when_another_tenants_turn_comes(
    tables: Rig,
) -> None:
    """Its rows are written before the tenant changes: that of the next tenant was named."""
    (bad,) = await tables.record(Opened("b", "bob"), tenant_id="acme")
    await tables.record(Deposited("a", 1), tenant_id="beta")

    with pytest.raises(RebuildFailed) as failed:
        await LogRebuild(Stern(), tables.parts()).run()

    assert (failed.value.event_id, failed.value.position) == (bad, 1)


@on_two
async def test_the_event_is_named_though_its_write_fails_before_a_method_with_a_session(
    tables: Rig,
) -> None:
    (bad,) = await tables.record(Opened("b", "bob"))
    await tables.record(Renamed("a", "ann"))

    with pytest.raises(RebuildFailed) as failed:
        await LogRebuild(Stern(), tables.parts()).run()

    assert (failed.value.event_id, failed.value.position) == (bad, 1)


@on_two
async def test_a_rebuild_whose_rows_the_live_table_does_not_take_says_so(tables: Rig) -> None:
    """The shadow has the columns and the key alone."""
    await tables.record(Opened("a", "ann"), Opened("b", "ann"))

    with pytest.raises(RebuildFailed, match=r"not taken by unique_account: .*(UNIQUE|unique)"):
        await LogRebuild(Unique(), tables.parts()).run()
