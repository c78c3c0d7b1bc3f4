"""A method that is slow, or fails, holds up neither the model nor what was applied before it."""

from collections import Counter
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pillarbox.clock import SYSTEM_CLOCK
from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.readmodel.changes import Change, Increment
from pillarbox.readmodel.definition import ModelSession, ReadModel
from pillarbox.readmodel.definition import on as on_event
from pillarbox.readmodel.log import Entry, LogBatch
from pillarbox.readmodel.observer import Observer
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.position import Gap, Position
from pillarbox.readmodel.runner import LogRunner
from pillarbox.schema.tables import readmodel_held
from tests.readmodel.bank import on_two
from tests.readmodel.rig import Account, Deposited, Opened, Poison, Rig
from tests.support.database import PROPERTY_BACKENDS, on, on_postgres
from tests.support.giving_up import give_up
from tests.support.waiting import until


class Clock:
    """A clock that stands still but for what takes its time."""

    def __init__(self) -> None:
        self.time = SYSTEM_CLOCK.now()

    def now(self) -> datetime:
        return self.time

    def pass_by(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class Heard(Observer):
    """What was told, in its order: commits with the number of their events, keys held and released."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, int | str]] = []
        self.lost = False

    def applying(self, events: int) -> None:
        del events
        if self.lost:
            raise DatabaseAway(ConnectionResetError("lost"))

    def applied(self, events: int, took: timedelta) -> None:
        del took
        self.steps.append(("applied", events))

    def held(self, tenant_id: str, key: str, error_class: str) -> None:
        del tenant_id, error_class
        self.steps.append(("held", key))

    def released(self, tenant_id: str, key: str) -> None:
        del tenant_id
        self.steps.append(("released", key))

    def of(self, kind: str) -> list[int | str]:
        return [what for step, what in self.steps if step == kind]


class Slow(ReadModel, name="accounts", table=Account):
    """A model that asks a service about some accounts, which takes ten seconds."""

    def __init__(self, clock: Clock, slow: str = "") -> None:
        self.clock, self.slow, self.down = clock, slow, True
        self.tries: Counter[str] = Counter()

    @on_event(Opened)
    def opened(self, event: Opened) -> None:
        self.ask(event.account_id)
        if self.down:
            raise Poison(event.account_id)

    @on_event(Deposited)
    def deposited(self, event: Deposited) -> Change:
        self.ask(event.account_id)
        return Increment(event.account_id, cents=event.cents)

    def ask(self, account: str) -> None:
        self.tries[account] += 1
        if account in self.slow:
            self.clock.pass_by(10)


def runner(rig: Rig, model: Slow, heard: Heard, **options: int) -> LogRunner:
    config = rig.parts(observer=heard, retry_delay=60, retry_delay_max=60, **options).config
    return LogRunner(model, Parts(rig.database.sessions, config, observer=heard, clock=model.clock))


async def held_keys(rig: Rig) -> list[tuple[str, int, int, str]]:
    async with rig.database.engine.connect() as connection:
        found = await connection.execute(readmodel_held.select().order_by(readmodel_held.c.key))
    return [(row.key, row.seq, row.attempts, row.error_class) for row in found]


@on_two
async def test_a_batch_that_failed_is_committed_a_few_rows_at_a_time(rig: Rig) -> None:
    """It was once one transaction, of a thousand events one by one."""
    heard = Heard()
    await rig.record(*(Deposited("b", 1) for _ in range(30)), Opened("a", "ann"))
    await rig.record(*(Deposited("b", 1) for _ in range(30)))

    await runner(rig, Slow(Clock()), heard, batch_size=40).drain()

    # The batch of forty that failed, in two parts; then all that is left.
    assert heard.of("applied") == [20, 19, 21]
    assert await rig.cents() == {"b": 60}


@on_two
async def test_a_transaction_ends_when_its_methods_have_taken_their_time(rig: Rig) -> None:
    """A service that timed out once held the model's row for as long as a whole batch took."""
    heard = Heard()
    await rig.record(Opened("a", "ann"), Deposited("x", 1), Opened("b", "bob"), Deposited("x", 1))
    await rig.record(Opened("c", "cid"), Deposited("x", 1))

    await runner(rig, Slow(Clock(), "abc"), heard).drain()

    assert heard.steps == [
        ("held", "a"), ("applied", 0), ("held", "b"), ("applied", 1), ("held", "c"),
        ("applied", 1), ("applied", 1),
    ]  # fmt: skip
    assert await rig.cents() == {"x": 3}


@on_two
async def test_keys_are_released_each_by_itself_as_long_as_there_is_time(rig: Rig) -> None:
    """All that were due were once tried in one transaction, however long it took."""
    heard, model = Heard(), Slow(Clock(), "abc")
    await rig.record(Opened("a", "ann"), Opened("b", "bob"), Opened("c", "cid"))
    tried = runner(rig, model, heard)
    await tried.drain()
    model.clock.pass_by(600)
    model.down = False

    more = await tried.look()
    left = await rig.count("readmodel_held")
    await tried.drain()

    assert (more, left) == (True, 2)
    assert heard.of("released") == ["a", "b", "c"]
    assert await rig.count("readmodel_held") == 0


@on_two
async def test_what_waits_for_a_key_is_applied_in_parts_and_others_have_their_turn_between(
    rig: Rig,
) -> None:
    heard, model = Heard(), Slow(Clock(), "a")
    await rig.record(Opened("a", "ann"), *(Deposited("a", n) for n in (1, 2, 4)))
    await rig.record(Opened("b", "bob"), Deposited("b", 8))
    tried = runner(rig, model, heard)
    await tried.drain()
    model.clock.pass_by(600)
    model.down = False

    await tried.look()
    held = await held_keys(rig)
    await tried.look()
    released = heard.of("released")
    await tried.drain()

    assert held == [("a", 2, 0, "NotReached"), ("b", 5, 1, "Poison")]
    assert released == ["b"]
    assert heard.of("released") == ["b", "a"]
    assert heard.of("held") == ["a", "b"]
    assert await rig.cents() == {"a": 7, "b": 8}


@on_two
async def test_as_many_events_are_read_for_a_key_as_are_in_a_batch(rig: Rig) -> None:
    """All that waited were once read at once, whatever memory that took."""
    heard, model = Heard(), Slow(Clock())
    await rig.record(Opened("a", "ann"), *(Deposited("a", 1) for _ in range(6)))
    tried = runner(rig, model, heard, batch_size=3)
    await tried.drain()
    model.clock.pass_by(600)
    model.down = False

    await tried.look()
    held = await held_keys(rig)
    await tried.drain()

    assert held == [("a", 4, 0, "NotReached")]
    assert await rig.cents() == {"a": 6}
    assert await rig.count("readmodel_held") == 0


class GivesUp(Slow, name="accounts", table=Account):
    @on_event(Opened)
    async def opened(self, event: Opened, model: ModelSession) -> None:  # type: ignore[override] # another form of method
        self.ask(event.account_id)
        await give_up(model.session)


@on("postgres18+asyncpg")
async def test_what_a_closed_connection_takes_along_is_done_again_once(rig: Rig) -> None:
    """Each event that gave up its statement had all those before it done again."""
    heard, model = Heard(), GivesUp(Clock())
    for bad, good in ("ab", "cd", "ef", "gh"):
        await rig.record(Opened(bad, "ann"), Deposited(good, 1))

    await runner(rig, model, heard).drain()

    assert await rig.cents() == {"b": 1, "d": 1, "f": 1, "h": 1}
    assert heard.of("held") == ["a", "c", "e", "g"]
    assert max(model.tries.values()) <= 3
    assert sum(model.tries.values()) <= 16


@on_two
async def test_nothing_is_told_of_a_transaction_that_was_not_committed(rig: Rig) -> None:
    """A key was once said to be held by a transaction that was lost, and again by the next."""
    heard = Heard()
    await rig.record(Opened("a", "ann"), Deposited("b", 1))
    tried = runner(rig, Slow(Clock()), heard)
    heard.lost = True
    with pytest.raises(DatabaseAway):
        await tried.drain()
    before = list(heard.steps)
    heard.lost = False

    await tried.drain()

    assert before == []
    assert heard.steps == [("held", "a"), ("applied", 1)]


@on_postgres
async def test_what_is_left_of_a_gap_is_read_by_the_next_transaction(rig: Rig) -> None:
    heard, model = Heard(), Slow(Clock(), "abcs")
    tried = runner(rig, model, heard)
    await tried.drain()
    async with rig.slow_transaction(
        Opened("a", "ann"), Deposited("s", 1), Deposited("s", 2), Opened("b", "bob"),
        Deposited("s", 4),
    ) as slow:  # fmt: skip
        await rig.record(Deposited("x", 8))
        await tried.drain()
        before = await rig.cents()
        await slow.commit()
    await rig.record(Deposited("s", 16), Opened("c", "cid"))

    await tried.drain()

    assert before == {"x": 8}
    assert await rig.cents() == {"x": 8, "s": 23}
    assert heard.of("held") == ["a", "b", "c"]
    assert await rig.position() == (8, [])


def test_a_batch_that_ends_in_a_gap_says_nothing_of_what_is_above() -> None:
    after = Position(20, (Gap(5, 12, (1,)),))
    batch = LogBatch([Entry(seq, "t", "k", "", None) for seq in (7, 9, 21, 22)])

    cut, whole = batch.upto(7, after), batch.upto(21, after)

    assert [entry.seq for entry in cut.entries] == [7]
    assert after.moved([7], cut.open, cut.cut) == Position(20, (Gap(8, 12, (1,)),))
    assert [entry.seq for entry in whole.entries] == [7, 9, 21]
    assert after.moved([7, 9, 21], whole.open, whole.cut) == Position(21)


class Moody(ReadModel, name="accounts", table=Account):
    """A model whose methods fail at their first tries, and take their time."""

    def __init__(self, clock: Clock, moods: dict[int, int]) -> None:
        self.clock, self.moods = clock, moods

    @on_event(Deposited)
    def deposited(self, event: Deposited) -> Change:
        self.clock.pass_by(event.cents % 3)
        if self.moods.get(event.cents, 0):
            self.moods[event.cents] -= 1
            raise Poison(event.account_id)
        return Increment(event.account_id, cents=event.cents)


@on(*PROPERTY_BACKENDS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    moods=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=1, max_size=10),
    size=st.integers(1, 6),
)
async def test_every_event_takes_effect_once_whatever_fails_and_however_long_it_takes(
    rig: Rig, moods: list[tuple[str, int]], size: int
) -> None:
    await rig.clear()
    rig.versions.clear()
    expected: Counter[str] = Counter()
    for cents, (account, _) in enumerate(moods, 1):
        await rig.record(Deposited(account, cents))
        expected[account] += cents
    clock = Clock()
    model = Moody(clock, {cents: fails for cents, (_, fails) in enumerate(moods, 1)})
    parts = Parts(rig.database.sessions, rig.parts(batch_size=size).config, clock=clock)

    async def is_applied() -> bool:
        await LogRunner(model, parts).drain()
        clock.pass_by(600)
        return await rig.count("readmodel_held") == 0

    await until(is_applied, "nothing is held any more")

    assert await rig.cents() == expected
