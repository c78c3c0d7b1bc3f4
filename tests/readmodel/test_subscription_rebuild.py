"""A model that follows a subscription is built again: all of it, or not at all."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox import Pillarbox
from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.memory_subscription import MemorySubscription
from pillarbox.bus.subscription import Delivery, Outlook, Revoked, SubscriptionRequest
from pillarbox.errors import HistoryIncomplete, RebuildFailed
from pillarbox.event.incoming import Incoming
from pillarbox.ops import ReadModelOps
from pillarbox.readmodel.checkpoint import Checkpoints, Generation
from pillarbox.readmodel.definition import ModelSession
from pillarbox.readmodel.definition import on as on_event
from pillarbox.readmodel.progress import Progress
from pillarbox.schema.tables import readmodel
from tests.readmodel.bank import LONG_AGO, QUICK, TOPIC, Bank, has, on_two, running
from tests.readmodel.rig import Accounts, Poison, Renamed, Rig
from tests.support.database import on
from tests.support.waiting import until


@pytest.fixture
def bank(rig: Rig) -> Bank:
    return Bank(rig)


@on_two
async def test_a_model_is_built_again_from_the_broker_s_log(bank: Bank, rig: Rig) -> None:
    bank.open("ann", 1)
    bank.deposit(5, 2)
    await bank.model.drain()
    async with rig.database.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE account SET owner = 'nobody', cents = 99")

    await bank.model.rebuild()
    rebuilt = await bank.row()
    bank.deposit(7, 3)
    await bank.model.drain()

    assert rebuilt == ("ann", 5)
    assert await bank.row() == ("ann", 12)
    assert await rig.count("account_shadow") == 0


def steps(told: Sequence[Progress]) -> list[tuple[str, int, int | None, float | None]]:
    return [(step.phase, step.position, step.target, step.share) for step in told]


@on_two
async def test_a_rebuild_from_the_broker_s_log_tells_how_far_it_is(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once told that it was at position 0 of 0, with no rate."""
    monkeypatch.setattr("pillarbox.readmodel.filling._EVERY", 0.001)
    bus = Odd()
    bank = Bank(rig, bus, replace(QUICK, tell_every=0.001))
    told: list[Progress] = []
    for number in range(10):
        bank.deposit(1, number)
    bank.send("Unknown", "{}", 10)
    await bank.model.drain()

    class Two(MemorySubscription):
        """A member that is given two messages, and no more before they are told of."""

        given = 0

        async def receive(self, most: int) -> Sequence[Delivery]:
            await until(lambda: is_told(self.given), "those before are told of")
            found = await super().receive(min(most, 2))
            self.given += len(found)
            return found

    async def is_told(messages: int) -> bool:
        return not messages or any((step.position, step.target) == (messages, 11) for step in told)

    bus.member = Two
    await bank.model.rebuild(report=told.append)

    seen = dict.fromkeys(step for step in steps(told) if step[0] == "filling" and step[1])
    assert list(seen) == [("filling", n, 11, n / 11) for n in (2, 4, 6, 8, 10, 11)]
    assert steps(told)[-1] == ("done", 11, 11, 1.0)
    halfway = next(step for step in told if step.position == 4)
    assert halfway.events_per_second > 0
    assert halfway.remaining is not None
    assert halfway.remaining.total_seconds() > 0


class Uncounted(MemorySubscription):
    """A member whose broker does not count, but knows its end."""

    async def lag(self) -> int:
        return None  # type: ignore[return-value] # as every other subscription may answer

    async def is_at_end(self) -> bool:
        return self._group.waiting() == 0


@on_two
async def test_a_broker_that_does_not_count_leaves_the_end_unknown(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.readmodel.filling._EVERY", 0.001)
    bus = Odd()
    bank = Bank(rig, bus, replace(QUICK, tell_every=0.001))
    told: list[Progress] = []
    bank.deposit(1, 1)
    bank.deposit(1, 2)
    await bank.model.drain()

    async def is_told() -> bool:
        return bool(told)

    class Reluctant(Uncounted):
        async def receive(self, most: int) -> Sequence[Delivery]:
            await until(is_told, "it is told before anything comes")
            return await super().receive(most)

    bus.member = Reluctant
    await bank.model.rebuild(report=told.append)

    assert steps(told)[0] == ("filling", 0, None, None)
    assert told[0].remaining is None
    assert steps(told)[-1] == ("done", 2, 2, 1.0)


@on_two
async def test_the_broker_s_word_that_nothing_is_left_is_the_end_whatever_is_heard_later(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that was asked again, and was slow to answer, once left the end unknown."""

    async def silence(_: object) -> Outlook:
        return Outlook(None, None)

    told: list[Progress] = []
    bank.deposit(1, 1)
    bank.deposit(1, 2)
    await bank.model.drain()
    monkeypatch.setattr("pillarbox.consumer.telling.outlook", silence)

    await bank.model.rebuild(report=told.append)

    assert [step for step in steps(told) if step[0] == "filling"][-1] == ("filling", 2, 2, 1.0)


@on_two
async def test_a_rebuild_that_goes_on_counts_what_was_taken_before(bank: Bank, rig: Rig) -> None:
    bank.open("ann", 1)
    bank.deposit(1, 2)
    await bank.model.drain()
    bank.send("Renamed", '{"account_id":"a"}', 3)
    with pytest.raises(RebuildFailed):
        await bank.model.rebuild()
    views = await ReadModelOps(rig.database.engine, actor="jane").list()
    async with rig.database.engine.begin() as connection:
        await connection.exec_driver_sql("DELETE FROM inbox_parked")
    told: list[Progress] = []

    await bank.model.rebuild(report=told.append)

    assert [(view.position, view.target, view.events) for view in views] == [
        (0, None, 0),
        (3, 3, 3),
    ]
    assert steps(told) == [
        ("filling", 3, 3, 1.0), ("switching", 3, 3, 1.0), ("done", 3, 3, 1.0),
    ]  # fmt: skip
    (view,) = await ReadModelOps(rig.database.engine, actor="jane").list()
    assert (view.position, view.target, view.events) == (0, None, 0)


@on_two
async def test_what_a_reporter_raises_ends_a_rebuild_from_the_broker_s_log(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.readmodel.filling._EVERY", 0.001)
    bus = Odd()
    bank = Bank(rig, bus)
    bank.open("ann", 1)
    await bank.model.drain()
    bus.member = Mute  # it would wait for two minutes

    def refuse(progress: Progress) -> None:
        raise Poison(progress.model)

    with pytest.raises(Poison):
        await bank.model.rebuild(report=refuse)


class Forgetful(MemoryMessageBus):
    """A bus whose log does not begin with its first message."""

    async def forgotten(self, topics: Sequence[str]) -> Sequence[str]:
        return [f"stream {topic} begins with message 2 and holds 1 of 2" for topic in topics]


@on("sqlite+aiosqlite")
async def test_a_broker_s_log_that_was_cut_is_refused_and_named(rig: Rig) -> None:
    bank = Bank(rig, Forgetful())
    bank.open("ann", 1)
    await bank.model.drain()

    with pytest.raises(HistoryIncomplete, match=f"stream {TOPIC} begins with message 2"):
        await bank.model.rebuild()
    assert await rig.count("readmodel") == 1
    assert await bank.row() == ("ann", 0)

    await Bank(rig, bank.bus, replace(QUICK, history="kept")).model.rebuild()
    assert await bank.row() == ("ann", 0)


class Hesitant(MemorySubscription):
    """A member that is given nothing at first, as in a group that has not shared its partitions."""

    looks = 3

    async def receive(self, most: int) -> Sequence[Delivery]:
        self.looks -= 1
        return () if self.looks >= 0 else await super().receive(most)


class Mute(MemorySubscription):
    """A member whose broker is away."""

    async def receive(self, most: int) -> Sequence[Delivery]:
        del most
        return await super().receive(0)

    async def lag(self) -> int:
        return None  # type: ignore[return-value] # as every other subscription may answer


class Odd(MemoryMessageBus):
    """A bus whose members are of another kind, from a word on."""

    member: type[MemorySubscription] = MemorySubscription

    def subscribe(self, request: SubscriptionRequest) -> MemorySubscription:
        made = super().subscribe(request)
        made.__class__ = self.member
        return made


@on_two
async def test_a_rebuild_does_not_take_silence_for_the_end_of_the_broker_s_log(rig: Rig) -> None:
    """A group that had not shared its partitions yet once made an empty table the live one."""
    bus = Odd()
    bank = Bank(rig, bus)
    bank.open("ann", 1)
    bank.deposit(5, 2)
    await bank.model.drain()
    bus.member = Hesitant

    await bank.model.rebuild()

    assert await bank.row() == ("ann", 5)


@on_two
async def test_a_rebuild_whose_broker_stays_silent_fails_and_the_live_table_stays(rig: Rig) -> None:
    bus = Odd()
    bank = Bank(rig, bus, replace(QUICK, fill_timeout=0.2))
    bank.open("ann", 1)
    await bank.model.drain()
    bus.member = Mute

    with pytest.raises(RebuildFailed, match=r"in 0\.2 s of silence the broker did not say"):
        await bank.model.rebuild()
    assert await bank.row() == ("ann", 0)

    bus.member = MemorySubscription
    await bank.model.rebuild()
    assert await bank.row() == ("ann", 0)


@on_two
async def test_a_message_that_is_parked_while_a_model_is_filled_refuses_the_switch(
    bank: Bank, rig: Rig
) -> None:
    """It was once passed over: the rows went live without it."""
    bank.open("ann", 1)
    await bank.model.drain()
    bank.send("Renamed", '{"account_id":"a"}', 2)

    with pytest.raises(RebuildFailed, match=r"payload\.owner is missing .* 'accounts-2'"):
        await bank.model.rebuild()
    assert await rig.count("readmodel") == 2

    async with rig.database.engine.begin() as connection:
        await connection.exec_driver_sql("DELETE FROM inbox_parked")
    await bank.model.rebuild()
    assert await rig.count("readmodel") == 1


@on_two
async def test_a_rebuild_that_goes_on_after_another_has_switched_takes_no_message(rig: Rig) -> None:
    """It once wrote the message into the shadow table and noted it as done: it was lost for good."""
    bus = Odd()
    bank, other = Bank(rig, bus), Bank(rig, bus)
    bank.open("ann", 1)
    bank.deposit(5, 2)
    await bank.model.drain()

    class Overtaken(MemorySubscription):
        async def start(self, revoked: Revoked) -> Sequence[str]:
            bus.member = MemorySubscription
            await other.model.rebuild()
            bank.deposit(7, 3)
            return await super().start(revoked)

    bus.member = Overtaken
    with pytest.raises(RebuildFailed, match="another rebuild of it was first"):
        await bank.model.rebuild()
    await bank.model.drain()

    assert await bank.row() == ("ann", 12)
    assert await rig.count("account_shadow") == 0


async def age(rig: Rig) -> None:
    """Make a rebuild's mark old, as if its process had died long ago."""
    async with rig.database.engine.begin() as connection:
        # Whoever renews the mark locks both rows, the live one first.
        aged = update(readmodel).where(readmodel.c.state == "filling")
        await connection.execute(aged.values(moved_at=LONG_AGO))


@on_two
async def test_a_rebuild_that_was_killed_does_not_hold_the_live_model_up_for_ever(
    bank: Bank, rig: Rig
) -> None:
    """It once left the model paused, as if an operator had done it."""
    bank.open("ann", 1)
    await bank.model.drain()
    async with rig.parts().transactions.begin(None) as session:
        filling = Generation(name="accounts", generation=2, source="bus", state="filling")
        await Checkpoints().begin(session, filling)
        await Checkpoints().hold_still(session, "accounts", still=True)
    bank.deposit(5, 2)

    await bank.model.drain()
    still = await bank.row()
    await age(rig)
    await bank.model.drain()

    assert still == ("ann", 0)
    assert await bank.row() == ("ann", 5)


class Pausing(Odd):
    """A bus beside which an operator pauses the model when it is subscribed to the second time."""

    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self.rig, self.looks = rig, 0

    def subscribe(self, request: SubscriptionRequest) -> MemorySubscription:
        made = super().subscribe(request)
        self.looks += request.consumer == "accounts-2"
        rig, second = self.rig, self.looks == 2

        class Paused(MemorySubscription):
            async def start(self, revoked: Revoked) -> Sequence[str]:
                if second:
                    ops = ReadModelOps(rig.database.engine, actor="jane")
                    await ops.pause("accounts", reason="a test")
                return await super().start(revoked)

        made.__class__ = Paused
        return made


@on_two
async def test_an_operator_s_pause_during_a_rebuild_outlives_it(rig: Rig) -> None:
    """The end of the rebuild once resumed the model."""
    bank = Bank(rig, Pausing(rig))
    bank.open("ann", 1)
    await bank.model.drain()

    await bank.model.rebuild()
    bank.deposit(5, 2)
    await bank.model.drain()

    (view,) = await ReadModelOps(rig.database.engine, actor="jane").list()
    assert (view.generation, view.paused) == (2, True)
    assert await bank.row() == ("ann", 0)


@on_two
async def test_a_rebuild_has_the_live_model_stand_still_as_long_as_it_takes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.readmodel.subscribed_rebuild._RENEW", 0.01)
    bus = Odd()
    bank = Bank(rig, bus)
    bank.open("ann", 1)
    await bank.model.drain()

    async def is_marked() -> bool:
        async with rig.parts().transactions.begin(None) as session:
            return await Checkpoints().stands_still(session, "accounts")

    class Long(MemorySubscription):
        async def receive(self, most: int) -> Sequence[Delivery]:
            if await is_marked():
                await age(rig)
                await until(is_marked, "the mark is renewed")
            return await super().receive(most)

    bus.member = Long
    await bank.model.rebuild()

    assert not await is_marked()
    assert await bank.row() == ("ann", 0)


class Probing(Accounts):
    """A model that looks from outside whether its generation is locked while it takes an event."""

    def __init__(self) -> None:
        self.free: list[str] = []
        self.engine: AsyncEngine | None = None

    @on_event(Renamed)
    async def renamed(self, event: Renamed, model: ModelSession) -> None:  # type: ignore[override] # another form of method
        del model
        if event.owner == "bad":
            raise Poison(event.account_id)
        assert self.engine is not None
        async with self.engine.connect() as connection:
            query = "SELECT name FROM readmodel FOR UPDATE SKIP LOCKED"
            self.free += (await connection.exec_driver_sql(query)).scalars().all()


@on("postgres18+asyncpg")
async def test_a_message_that_fails_does_not_let_go_of_the_generation_for_those_behind_it(
    rig: Rig,
) -> None:
    """Its savepoint's rollback released the row, and the next of the batch did not ask again."""
    bus = MemoryMessageBus()
    box = Pillarbox(rig.database.engine, bus, service="bank", environ={})
    runner = box.read_model(Probing, topics=[TOPIC], config=QUICK)
    model = runner.model
    assert isinstance(model, Probing)
    model.engine = rig.database.engine
    for number in range(40):
        account, owner = f"a{number}", "good" if number else "bad"
        body = f'{{"account_id":"{account}","owner":"{owner}"}}'.encode()
        told = {"event_id": account, "event_type": "Renamed"}
        bus.put(Incoming(TOPIC, account, told, body, "application/json"))

    async with running(runner):
        await until(lambda: have_come(rig, 39), "the good ones are applied")

    assert model.free == []


async def have_come(rig: Rig, messages: int) -> bool:
    return await rig.count("inbox") == messages


class Queues(MemoryMessageBus):
    """A bus that keeps nothing that was taken."""

    forgotten = None  # type: ignore[assignment] # how a class says that it has no such method


@on("sqlite+aiosqlite")
async def test_a_broker_that_keeps_nothing_is_no_history(rig: Rig) -> None:
    bank = Bank(rig, Queues())
    await bank.model.drain()

    with pytest.raises(HistoryIncomplete, match="this bus has no log of messages that were taken"):
        await bank.model.rebuild()


@on_two
async def test_a_running_model_goes_on_with_the_generation_that_was_built(
    bank: Bank, rig: Rig
) -> None:
    bank.open("ann", 1)
    async with running(bank.model):
        await until(lambda: has(bank, ("ann", 0)), "the first message is applied")
        bank.deposit(5, 2)
        await bank.model.rebuild()
        bank.deposit(7, 3)
        await until(lambda: has(bank, ("ann", 12)), "all are applied once")

    assert await rig.count("readmodel") == 1
