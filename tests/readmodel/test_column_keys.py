"""A column goes by its key, whatever its name in the database is."""

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, delete

from pillarbox.readmodel.changes import Change, Increment
from pillarbox.readmodel.definition import ReadModel, on
from pillarbox.readmodel.query import ReadDAO
from pillarbox.readmodel.rebuild import LogRebuild
from tests.readmodel.bank import on_two
from tests.readmodel.rig import Deposited, Rig

METADATA = MetaData()
KEYED = Table(
    "keyed_account", METADATA,
    Column("tenant", String(64), key="tenant_id", primary_key=True),
    Column("acc", String(64), key="account_id", primary_key=True),
    Column("amt", Integer, key="amount"),
)  # fmt: skip


class Keyed(ReadModel, name="keyed", table=KEYED):
    @on(Deposited)
    def deposited(self, event: Deposited) -> Change:
        return Increment(event.account_id, amount=event.cents)


@pytest.fixture
async def keyed(rig: Rig) -> Rig:
    async with rig.database.engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
        await connection.execute(delete(KEYED))
    return rig


@on_two
async def test_a_model_whose_columns_have_other_keys_than_names_is_built_again(keyed: Rig) -> None:
    """It once ended with a KeyError, each time."""
    await keyed.record(Deposited("a", 5))
    await keyed.runner(Keyed()).drain()

    await LogRebuild(Keyed(), keyed.parts()).run()
    await keyed.record(Deposited("a", 2))
    await keyed.runner(Keyed()).drain()

    async with keyed.database.sessions() as session:
        dao = ReadDAO(session, Keyed)
        row, found = await dao.get("a"), await dao.find(amount=7)
    assert row == {"tenant_id": "default", "account_id": "a", "amount": 7}
    assert found == [row]
