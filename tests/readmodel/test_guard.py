"""Of one aggregate's events the one with the higher version stands, and within it the higher number."""

import pytest

from pillarbox import DomainEvent, MessageEnvelope, SqlAlchemyOutbox
from pillarbox.outbox.new_event import NewEvent
from pillarbox.readmodel.changes import Change, Delete, Increment, Update, Upsert
from pillarbox.readmodel.folding import Mark, Page
from tests.readmodel.bank import Bank, on_two
from tests.readmodel.rig import Closed, Opened, Renamed, Rig

NEWER: dict[str, Change] = {
    "an upsert": Upsert("a", n=2), "an update": Update("a", n=2), "a delete": Delete("a"),
    "an increment": Increment("a", n=2),
}  # fmt: skip
OLDER: dict[str, Change] = {
    "an upsert": Upsert("a", n=9), "an update": Update("a", n=9), "a delete": Delete("a"),
}  # fmt: skip


def of(version: int, number: int) -> MessageEnvelope:
    return MessageEnvelope(
        f"e{version}.{number}", "E", aggregate_type="t", aggregate_id="a",
        aggregate_version=version, event_number=number,
    )  # fmt: skip


@pytest.mark.parametrize("older", OLDER)
@pytest.mark.parametrize("newer", NEWER)
def test_within_a_version_a_lower_number_changes_nothing(newer: str, older: str) -> None:
    page = Page()
    page.apply(Upsert("a", n=1), of(1, 1), "id")
    page.apply(NEWER[newer], of(2, 2), "id")
    before = page.rows["a"]

    page.apply(OLDER[older], of(2, 1), "id")

    assert page.rows["a"] == before
    assert list(page.marks.values()) == [Mark(2, 2)]


def test_within_a_version_an_increment_of_a_lower_number_does_not_bring_a_deleted_row_back() -> (
    None
):
    page = Page()
    page.apply(Upsert("a", n=1), of(1, 1), "id")
    page.apply(Delete("a"), of(2, 2), "id")

    page.apply(Increment("a", n=9), of(2, 1), "id")

    assert page.rows["a"] is None


def test_within_a_version_a_higher_number_takes_effect() -> None:
    page = Page()
    page.apply(Upsert("a", n=1), of(2, 1), "id")

    page.apply(Upsert("a", n=2), of(2, 2), "id")

    assert page.rows["a"] == {"id": "a", "n": 2}


def test_a_number_says_nothing_against_a_higher_version() -> None:
    page = Page()
    page.apply(Upsert("a", n=1), of(2, 5), "id")

    page.apply(Upsert("a", n=2), of(3, 1), "id")

    assert page.rows["a"] == {"id": "a", "n": 2}


# What version 2 says as its second event, and what it said as its first one, which comes after it.
PAIRS: dict[str, tuple[DomainEvent, DomainEvent, str | None]] = {
    "an upsert": (Opened("a", "anna"), Opened("a", "anne"), "anna"),
    "an update": (Renamed("a", "anna"), Renamed("a", "anne"), "anna"),
    "a delete": (Closed("a"), Opened("a", "anne"), None),
    "a delete that is late": (Renamed("a", "anna"), Closed("a"), "anna"),
}


async def record(rig: Rig, event: DomainEvent, version: int, number: int) -> None:
    new = NewEvent(
        event=event, key="a", aggregate_type="account", aggregate_id="a",
        aggregate_version=version, event_number=number,
    )  # fmt: skip
    async with rig.database.sessions() as session:
        await SqlAlchemyOutbox(session).add_many([new])
        await session.commit()


def send(bank: Bank, event: DomainEvent, version: int, number: int) -> None:
    match event:
        case Opened():
            bank.open(event.owner, version, number)
        case Renamed():
            bank.rename(event.owner, version, number)
        case _:
            bank.close(version, number)


async def owner(rig: Rig) -> str | None:
    row = (await rig.rows()).get(("default", "a"))
    return None if row is None else row["owner"]


@on_two
@pytest.mark.parametrize("batch_size", [1, 3], ids=["across batches", "in one batch"])
@pytest.mark.parametrize("kind", PAIRS)
async def test_a_model_of_the_log_goes_by_the_numbers_within_a_version(
    rig: Rig, kind: str, batch_size: int
) -> None:
    newer, older, expected = PAIRS[kind]
    await record(rig, Opened("a", "ann"), 1, 1)
    await record(rig, newer, 2, 2)
    await record(rig, older, 2, 1)

    await rig.runner(batch_size=batch_size).drain()

    assert await owner(rig) == expected


@on_two
@pytest.mark.parametrize("apart", [True, False], ids=["across drains", "in one drain"])
@pytest.mark.parametrize("kind", PAIRS)
async def test_a_model_of_a_subscription_goes_by_the_numbers_within_a_version(
    rig: Rig, kind: str, apart: bool
) -> None:
    newer, older, expected = PAIRS[kind]
    bank = Bank(rig)
    bank.open("ann", 1)
    send(bank, newer, 2, 2)
    if apart:
        await bank.model.drain()
    send(bank, older, 2, 1)

    await bank.model.drain()

    assert await owner(rig) == expected
