"""An event that fails holds its key, and nobody else."""

from pillarbox.readmodel.observer import Observer
from pillarbox.readmodel.runner import LogFollower
from tests.readmodel.rig import Accounts, Deposited, Opened, Rig
from tests.support.database import on_postgres
from tests.support.waiting import until


class Heard(Observer):
    def __init__(self) -> None:
        self.steps: list[tuple[str, str, str]] = []

    def held(self, tenant_id: str, key: str, error_class: str) -> None:
        del tenant_id
        self.steps.append(("held", key, error_class))

    def released(self, tenant_id: str, key: str) -> None:
        self.steps.append(("released", tenant_id, key))


async def test_a_bad_event_holds_its_key_and_others_go_on(rig: Rig) -> None:
    model = Accounts()
    model.broken = True
    await rig.record(Deposited("b", 1), Opened("a", "ann"), Deposited("a", 5), Deposited("b", 2))

    await rig.runner(model, retry_delay=60).drain()
    await rig.record(Deposited("a", 7), Deposited("b", 4))
    await rig.runner(model, retry_delay=60).drain()

    assert await rig.cents() == {"b": 7}
    assert await rig.count("readmodel_held") == 1


async def test_a_held_key_catches_up_in_order_when_its_event_works(rig: Rig) -> None:
    model, heard = Accounts(), Heard()
    model.broken = True
    await rig.record(Opened("a", "ann"), Deposited("a", 5))
    runner = rig.runner(model, observer=heard)
    await runner.drain()
    await rig.record(Deposited("a", 7))
    await runner.drain()
    model.broken = False

    await runner.drain()

    assert await rig.cents() == {"a": 12}
    assert (await rig.rows())["default", "a"]["status"] == "OPEN"
    assert await rig.count("readmodel_held") == 0
    assert heard.steps[0] == ("held", "a", "Poison")
    assert heard.steps[-1] == ("released", "default", "a")


async def test_what_a_held_key_applied_before_its_next_failure_stays_applied(rig: Rig) -> None:
    """A second bad event behind the first once took the good ones between them with it."""
    model = Accounts()
    model.broken = True
    await rig.record(Opened("a", "ann"), Deposited("a", 5))
    await rig.record_raw("Opened", {"account_id": "a"}, key="a")
    await rig.record(Deposited("a", 7))
    await rig.runner(model).drain()
    model.broken = False

    async def is_held_further_on() -> bool:
        await rig.runner(model, retry_delay=60).drain()
        return bool((await rig.held())["seq"] == 3)

    await until(is_held_further_on, "the key is held by its second bad event")

    assert await rig.cents() == {"a": 5}
    held = await rig.held()
    assert (held["error_class"], held["attempts"]) == ("UnreadableEvent", 1)


@on_postgres
async def test_a_held_key_leaves_a_late_commit_to_the_batch_that_reads_its_gap(rig: Rig) -> None:
    """It was once applied with the held key, and again through the gap."""
    model = Accounts()
    model.broken = True
    follower = LogFollower(model, rig.parts())
    await follower.turn()
    await rig.record(Opened("a", "ann"))
    async with rig.slow_transaction(Deposited("a", 5)) as slow:
        await rig.record(Deposited("b", 1))
        await follower.turn()
        model.broken = False
        await slow.commit()

    async def is_released() -> bool:
        await follower.release_due()
        return await rig.count("readmodel_held") == 0

    await until(is_released, "the key is due and released")
    await follower.turn()

    assert await rig.cents() == {"a": 5, "b": 1}


async def test_the_reason_stands_with_the_held_key(rig: Rig) -> None:
    model = Accounts()
    model.broken = True
    (event_id,) = await rig.record(Opened("a", "ann"), tenant_id="acme")

    await rig.runner(model, retry_delay=60).drain()

    row = await rig.held()
    assert (row["tenant_id"], row["key"], row["seq"]) == ("acme", "a", 1)
    assert str(row["event_id"]) == event_id
    assert (row["error_class"], row["error_message"], row["attempts"]) == ("Poison", "a", 1)


async def test_an_event_that_its_method_cannot_take_is_held(rig: Rig) -> None:
    await rig.record_raw("Opened", {"account_id": "a"}, key="a")
    await rig.record(Deposited("b", 1))

    await rig.runner(retry_delay=60).drain()

    assert (await rig.held())["error_class"] == "UnreadableEvent"
    assert await rig.cents() == {"b": 1}


@on_postgres
async def test_a_write_that_the_database_refuses_is_held(rig: Rig) -> None:
    await rig.record(Opened("a", "a" * 65), Deposited("b", 1))

    await rig.runner(retry_delay=60).drain()

    assert (await rig.held())["key"] == "a"
    assert await rig.cents() == {"b": 1}
