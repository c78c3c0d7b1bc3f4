"""A read model is the fold of its events, whatever breaks in between."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pillarbox import DomainEvent, MessageEnvelope
from pillarbox.readmodel.changes import Change, Delete, Increment, Update, Upsert
from pillarbox.readmodel.folding import Mark, Page, fold
from pillarbox.readmodel.observer import Observer
from pillarbox.readmodel.progress import Progress
from pillarbox.readmodel.rebuild import LogRebuild
from tests.readmodel.rig import Accounts, Closed, Credits, Deposited, Opened, Renamed, Rig
from tests.support.database import PROPERTY_BACKENDS, on

ACCOUNTS = ("a", "b", "c")
events = st.one_of(
    st.builds(Opened, st.sampled_from(ACCOUNTS), st.sampled_from(["ann", "bob"])),
    st.builds(Deposited, st.sampled_from(ACCOUNTS), st.integers(1, 9)),
    st.builds(Renamed, st.sampled_from(ACCOUNTS), st.sampled_from(["cid", "dan"])),
    st.builds(Closed, st.sampled_from(ACCOUNTS)),
)
# What happens next: a transaction with events, a look of the live runner, a piece of a rebuild; the
# number says at which of the steps that it comes to the process dies, if it does.
acts = st.one_of(
    st.tuples(st.just("record"), st.lists(events, min_size=1, max_size=4)),
    st.tuples(st.just("look"), st.none() | st.integers(0, 8)),
    st.tuples(st.just("rebuild"), st.none() | st.integers(0, 12)),
)


class Died(BaseException):
    """The process is gone: nobody handles this."""


class Crash(Observer):
    """End the process at the n-th step that it tells of."""

    def __init__(self, at: int | None) -> None:
        self.left = at

    def step(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise Died
            self.left -= 1

    def read(self, events: int) -> None:
        del events
        self.step()

    def applying(self, events: int) -> None:
        del events
        self.step()

    def applied(self, events: int, took: object) -> None:
        del events, took
        self.step()

    def report(self, progress: Progress) -> None:
        del progress
        self.step()


def expected(recorded: list[DomainEvent]) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Fold the events in the plainest way, without a word of the package's own fold."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    empty = {"owner": None, "status": None, "deposits": 0, "cents": 0}
    for event in recorded:
        key = ("default", event.account_id)  # type: ignore[attr-defined]  # every event has it
        name = {"tenant_id": key[0], "account_id": key[1]}
        match event:
            case Opened():
                rows[key] = {**name, **empty, "owner": event.owner, "status": "OPEN"}
            case Deposited():
                row = rows.setdefault(key, {**name, **empty})
                row["deposits"], row["cents"] = row["deposits"] + 1, row["cents"] + event.cents
            case Renamed() if key in rows:
                rows[key]["owner"] = event.owner
            case Closed():
                rows.pop(key, None)
    return dict(rows)


@on(*PROPERTY_BACKENDS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=st.lists(acts, max_size=12), size=st.integers(1, 5))
async def test_the_table_is_the_fold_of_the_events_through_crashes_and_rebuilds(
    rig: Rig, program: list[tuple[str, Any]], size: int
) -> None:
    await rig.clear()
    rig.versions.clear()
    recorded: list[DomainEvent] = []

    for act, what in program:
        if act == "record":
            await rig.record(*what)
            recorded += what
        elif act == "look":
            await look(rig, size, what)
        else:
            await rebuild(rig, size, what)

    await rebuild(rig, size, None)
    rebuilt = await rig.rows()
    await rig.runner(batch_size=size).drain()
    assert rebuilt == expected(recorded)
    assert await rig.rows() == expected(recorded)


@on(*PROPERTY_BACKENDS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(recorded=st.lists(events, min_size=1, max_size=8), size=st.integers(2, 8))
async def test_a_batch_comes_to_what_its_events_come_to_one_by_one(
    rig: Rig, recorded: list[DomainEvent], size: int
) -> None:
    """An increment once began with nothing in the batch that made its row, whatever the default."""
    await rig.clear()
    rig.versions.clear()
    await rig.record(*recorded)

    await rig.runner(Credits(), batch_size=1).drain()
    one_by_one = await rig.rows(Credits.table)
    await LogRebuild(Credits(), rig.parts(batch_size=size)).run()

    assert await rig.rows(Credits.table) == one_by_one


async def look(rig: Rig, size: int, dies_at: int | None) -> None:
    with suppress(Died):
        await rig.runner(batch_size=size, observer=Crash(dies_at)).drain()


async def rebuild(rig: Rig, size: int, dies_at: int | None) -> None:
    crash = Crash(dies_at)
    parts = rig.parts(batch_size=size, observer=crash)
    with suppress(Died):
        await LogRebuild(Accounts(), parts, report=crash.report).run()


def of(version: int, row_id: str = "a") -> MessageEnvelope:
    return MessageEnvelope(
        f"e{version}", "E", aggregate_type="t", aggregate_id=row_id, aggregate_version=version
    )


changes = st.one_of(
    st.builds(lambda n: Upsert("a", n=n), st.integers(0, 9)),
    st.builds(lambda n: Update("a", n=n), st.integers(0, 9)),
    st.just(Delete("a")),
)


@given(st.lists(changes, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_newest_event_decides_in_whatever_order_they_come(
    made: list[Change], chance: Any
) -> None:
    numbered = [(of(number), change) for number, change in enumerate(made, 1)]
    page = Page()
    shuffled = list(numbered)
    chance.shuffle(shuffled)
    newest = -1

    for envelope, change in shuffled:
        before, version = page.rows.get("a"), envelope.aggregate_version or 0
        page.apply(change, envelope, "id")
        if version < newest:
            assert page.rows.get("a") == before  # an older one changes nothing
        marks = list(page.marks.values())
        newest = marks[0].version if marks else -1
        assert not marks or marks == [Mark(newest, 0)]


@given(st.lists(st.integers(1, 9), max_size=8), st.randoms(use_true_random=False))
def test_increments_add_up_in_whatever_order_they_come(amounts: list[int], chance: Any) -> None:
    numbered = [(of(number), (Increment("a", n=n),)) for number, n in enumerate(amounts, 1)]
    chance.shuffle(numbered)

    rows = fold({envelope.event_id: (envelope, c) for envelope, c in numbered}, "id")

    assert rows == ({("default", "a"): {"id": "a", "n": sum(amounts)}} if amounts else {})


def test_the_fold_of_a_table_with_defaults_begins_with_them() -> None:
    """It once began with nothing, whatever the table's default."""
    events = {"e1": (of(1), (Upsert("a"), Increment("a", cents=5)))}

    rows = fold(events, "account_id", Credits.defaults)

    assert rows["default", "a"] == {"account_id": "a", "cents": 105, "deposits": 7}


def test_two_types_of_aggregates_with_one_id_do_not_shut_each_other_out() -> None:
    page = Page()
    page.apply(Upsert("a", n=1), of(7), "id")

    page.apply(Upsert("a", m=2), of(1)._replace(aggregate_type="other"), "id")

    assert page.rows["a"] == {"id": "a", "n": 1, "m": 2}


def test_all_changes_of_one_event_take_effect() -> None:
    page = Page()

    for change in (Upsert("a", n=1), Increment("a", n=2), Update("a", m=3)):
        page.apply(change, of(4), "id")

    assert page.rows["a"] == {"id": "a", "n": 3, "m": 3}
