"""Definitions are checked when they are made, with what is wrong and what to do."""

from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Computed,
    Dialect,
    FetchedValue,
    Float,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    TypeDecorator,
    func,
    literal,
    null,
    text,
)

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


NUMBER = Numeric(9, 2)


def number(kind: Any = NUMBER, **options: Any) -> Table:
    key = [Column(name, String(64), primary_key=True) for name in ("tenant_id", "id")]
    return Table("t", MetaData(), *key, Column("n", kind, **options))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({"server_default": "100"}, {"n": Decimal(100)}),
        ({"server_default": text("('1.50')")}, {"n": Decimal("1.50")}),
        ({"server_default": text("'-3'::numeric")}, {"n": Decimal(-3)}),
        ({"server_default": text("NULL")}, {}),
        ({"server_default": literal(0)}, {"n": Decimal(0)}),
        ({"server_default": literal(Decimal("1.5"))}, {"n": Decimal("1.5")}),
        ({"server_default": null()}, {}),
        ({"default": literal(7)}, {"n": Decimal(7)}),
        ({"default": Decimal(7)}, {"n": Decimal(7)}),
        ({"default": Decimal(7), "server_default": "100"}, {"n": Decimal(7)}),
    ],
)
def test_a_number_begins_with_its_default(options: Any, expected: dict[str, Any]) -> None:
    made = type("M", (ReadModel,), {}, name="m", table=number(**options))

    assert made.defaults == expected  # type: ignore[attr-defined]  # of a class that is made here


@pytest.mark.parametrize(
    "options",
    [
        {"server_default": func.random()},
        {"server_default": FetchedValue()},
        {"server_default": literal("now")},
        {"default": lambda: 1},
    ],
)
def test_a_number_whose_default_is_no_constant_is_refused(options: Any) -> None:
    """What an increment of it comes to would depend on where batches are cut."""
    with pytest.raises(InvalidConfig, match=r"column 'n', .* no constant; .* each Upsert"):
        type("M", (ReadModel,), {}, name="m", table=number(**options))


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (Integer(), "NaN"),
        (Integer(), "Infinity"),
        (Integer(), "1.5"),
        (Integer(), literal(1.5)),
        (Numeric(9, 2), "1.505"),
        (Numeric(9, 2), "Infinity"),
    ],
)
def test_a_number_whose_default_the_database_would_round_is_refused(
    kind: Any, default: Any
) -> None:
    """A row once began with 1 where PostgreSQL stores 2 for the default 1.5."""
    with pytest.raises(InvalidConfig, match=r"column 'n', .* does not hold its default \S+; "):
        type("M", (ReadModel,), {}, name="m", table=number(kind, server_default=default))


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (Integer(), "2.0", 2),
        (Numeric(40, 2), "1" * 36 + ".25", Decimal("1" * 36 + ".25")),
        (Numeric(), "1.505", Decimal("1.505")),
        (Float(), "0.1", 0.1),
    ],
)
def test_a_default_that_its_type_holds_is_taken_as_it_is(
    kind: Any, default: str, expected: Any
) -> None:
    made = type("M", (ReadModel,), {}, name="m", table=number(kind, server_default=default))

    found = made.defaults["n"]  # type: ignore[attr-defined]  # of a class that is made here

    assert (found, type(found)) == (expected, type(expected))


def test_what_a_table_does_by_itself_stands_in_the_shadow_table_too() -> None:
    """A computed column, and a default that is only said to be there, were once no definition."""
    live = number()
    live.append_column(Column("twice", Integer, Computed("n * 2")))
    live.append_column(Column("made", String(9), server_default=FetchedValue()))

    made = type("M", (ReadModel,), {}, name="m", table=live)

    shadow = made.shadow  # type: ignore[attr-defined]  # of a class that is made here
    assert str(shadow.c.twice.computed.sqltext) == "n * 2"
    assert isinstance(shadow.c.made.server_default, FetchedValue)
    assert made.defaults == {}  # type: ignore[attr-defined]  # of a class that is made here


class Points(TypeDecorator[int]):
    impl = Integer
    cache_ok = True


class Twice(Points):
    def process_result_value(self, value: int | None, dialect: Dialect) -> int | None:
        del dialect
        return None if value is None else 2 * value


def test_a_number_of_a_type_that_is_decorated_begins_with_its_default() -> None:
    """It once passed for none: a row began with nothing where the table says ten."""
    plain = type("M", (ReadModel,), {}, name="m", table=number(Points(), server_default="10"))
    own = type("M", (ReadModel,), {}, name="m", table=number(Twice(), default=20))

    assert plain.defaults == {"n": 10}  # type: ignore[attr-defined]  # of a class that is made here
    assert own.defaults == {"n": 20}  # type: ignore[attr-defined]  # of a class that is made here


@pytest.mark.parametrize(
    ("kind", "options", "problem"),
    [
        (Points(), {"server_default": func.random()}, "is no constant"),
        (Points(), {"server_default": "1.5"}, "does not hold its default 1.5"),
        (Twice(), {"server_default": "10"}, "what only a database tells"),
        (NUMBER, {"default": Decimal("1.505")}, "does not hold its default 1.505"),
        (NUMBER, {"default": 0.125}, "does not hold its default 0.125"),
        (Integer(), {"default": 1.5}, "does not hold its default 1.5"),
    ],
)
def test_a_default_that_is_not_read_again_as_it_is_written_is_refused(
    kind: Any, options: Any, problem: str
) -> None:
    with pytest.raises(InvalidConfig, match=rf"column 'n', .* {problem}; "):
        type("M", (ReadModel,), {}, name="m", table=number(kind, **options))
