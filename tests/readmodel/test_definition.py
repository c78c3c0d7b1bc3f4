"""Definitions are checked when they are made, with what is wrong and what to do."""

from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table

from pillarbox import (
    Change,
    Delete,
    DomainEvent,
    Increment,
    ModelSession,
    OutboxProjectorConfig,
    Pillarbox,
    ReadModel,
    Upsert,
    on,
)
from pillarbox.errors import InvalidConfig
from pillarbox.readmodel.changes import changes_of
from pillarbox.readmodel.config import ReadModelConfig
from tests.readmodel.rig import Account, Accounts, Deposited, Rig
from tests.support.database import on as on_database
from tests.support.waiting import until


class Happened(DomainEvent):
    id: str


def table(*key: str) -> Table:
    columns = [Column(name, String(64), primary_key=True) for name in key]
    return Table("t", MetaData(), *columns, Column("n", Integer, nullable=False))


@pytest.mark.parametrize("name", ["", "a b", "-a", "ä", "x" * 91, None])
def test_a_name_that_some_broker_refuses_is_refused(name: Any) -> None:
    with pytest.raises(InvalidConfig, match="name"):
        type("M", (ReadModel,), {}, name=name, table=table("tenant_id", "id"))


@pytest.mark.parametrize("key", [("id",), ("id", "tenant_id"), ("tenant_id", "a", "b")])
def test_a_key_that_is_not_tenant_and_id_is_refused(key: tuple[str, ...]) -> None:
    with pytest.raises(InvalidConfig, match="primary key"):
        type("M", (ReadModel,), {}, name="m", table=table(*key))


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="pass a mapped class or a Table"):
        type("M", (ReadModel,), {}, name="m", table="orders")


def test_the_shadow_table_has_the_same_columns_and_key() -> None:
    live, shadow = Accounts.table, Accounts.shadow

    assert shadow.metadata is live.metadata
    assert shadow.name == "account_shadow"
    assert [str(c.type) for c in shadow.columns] == [str(c.type) for c in live.columns]
    assert [c.name for c in shadow.primary_key] == ["tenant_id", "account_id"]


def model(method: Any) -> ReadModel:
    made = type("M", (ReadModel,), {"method": method}, name="m", table=table("tenant_id", "id"))
    found = made()
    assert isinstance(found, ReadModel)
    return found


def test_methods_that_nobody_can_call_are_refused() -> None:
    @on(Happened)
    def two(self: Any, event: Happened, other: int) -> None: ...

    @on(Happened)
    def plain(self: Any, event: Happened, at: ModelSession) -> None: ...

    @on(Happened)
    def none(self: Any) -> None: ...

    for method, problem in ((two, "takes"), (plain, "async def"), (none, "takes")):
        with pytest.raises(InvalidConfig, match=problem):
            model(method).methods()


def test_a_model_without_a_method_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="takes no event"):
        model(None).methods()


def test_two_methods_for_one_event_are_refused() -> None:
    @on("Happened")
    def again(self: Any, event: dict[str, Any]) -> None: ...

    class Twice(ReadModel, name="twice", table=Account):
        @on(Happened)
        def first(self, event: Happened) -> None: ...

        second = again

    with pytest.raises(InvalidConfig, match="second method for 'Happened'"):
        Twice().methods()


@pytest.mark.parametrize("answer", ["x", 1, [Upsert("a"), None], {"n": 1}, Change("a")])
def test_what_is_no_change_is_refused(answer: Any) -> None:
    with pytest.raises(InvalidConfig, match="return Upsert, Update, Delete or Increment"):
        changes_of(answer, "M.method")


def test_changes_are_compared_and_shown_by_their_content() -> None:
    assert Upsert("a", n=1) == Upsert("a", n=1)
    assert Upsert("a", n=1) != Upsert("a", n=2)
    assert Delete("a") != Upsert("a")
    assert repr(Increment("a", n=1)) == "Increment('a', n=1)"


def test_a_change_without_a_row_or_an_amount_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="names no row"):
        Upsert("")
    with pytest.raises(InvalidConfig, match="adds nothing"):
        Increment("a")


@pytest.mark.parametrize(
    "options", [{"batch_size": 0}, {"look_every": 0}, {"history": "some"}, {"retry_delay": 9e9}]
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        ReadModelConfig(**options)


def test_settings_come_from_variables() -> None:
    found = ReadModelConfig.from_env({"PILLARBOX_READMODEL_BATCH_SIZE": "7"})

    assert found.batch_size == 7


@on_database("postgres18+asyncpg")
async def test_a_projector_that_deletes_is_refused_beside_a_model_that_follows_the_log(
    rig: Rig,
) -> None:
    box = Pillarbox(rig.database.engine, "memory://", service="bank", environ={})
    box.read_model(Accounts)

    with pytest.raises(InvalidConfig, match="'accounts' follows the log"):
        box.projector(config=OutboxProjectorConfig(on_sent="delete"))


@on_database("postgres18+asyncpg")
async def test_a_model_has_one_runner_in_an_application(rig: Rig) -> None:
    box = Pillarbox(rig.database.engine, service="bank", environ={})
    box.read_model(Accounts)

    with pytest.raises(InvalidConfig, match="is there already"):
        box.read_model(Accounts)


class Trail(ReadModel, name="trail", table=Account):
    """A model that works on the session."""

    @on(Deposited)
    async def deposited(self, event: Deposited, model: ModelSession) -> None:
        key = {"tenant_id": model.tenant_id, "account_id": model.envelope.event_id}
        await model.session.execute(model.table.insert().values(**key, cents=event.cents))


@on_database("postgres18+asyncpg", "sqlite+aiosqlite")
async def test_a_method_may_work_on_the_session_and_is_built_again_like_any_other(rig: Rig) -> None:
    runner = rig.runner(Trail())
    first = await rig.record(Deposited("a", 5))
    await runner.drain()
    second = await rig.record(Deposited("a", 7))
    await runner.drain()
    before = await rig.cents()

    await Pillarbox(rig.database.engine, environ={}).read_model(Trail).rebuild()

    assert before == {first[0]: 5, second[0]: 7}
    assert await rig.cents() == before


@on_database("postgres18+asyncpg", "sqlite+aiosqlite")
async def test_an_application_runs_its_models_without_a_broker(rig: Rig) -> None:
    box = Pillarbox(rig.database.engine, service="bank", environ={})
    box.read_model(Accounts, config=ReadModelConfig(look_every=0.02))

    async with box.running(read_models=True):
        await rig.record(Deposited("a", 5))
        await until(lambda: has(rig), "the event is applied")


async def has(rig: Rig) -> bool:
    return await rig.cents() == {"a": 5}
