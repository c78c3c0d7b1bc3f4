"""Whoever stops a model has his turn, however many write it side by side."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from pillarbox.consumer.consumer import Consumer
from pillarbox.consumer.routes import Routes
from pillarbox.ops import ReadModelOps
from pillarbox.readmodel.checkpoint import Checkpoints, Generation, State
from pillarbox.readmodel.subscribed_rebuild import SubscribedRebuild
from tests.readmodel.rig import Accounts, Rig
from tests.support.database import on, on_postgres
from tests.support.waiting import LIMIT, until

LIVE = Generation(name="accounts", generation=1, source="bus", state="live")
FILLING = Generation(name="accounts", generation=2, source="bus", state="filling")


def no_consumer(name: str, routes: Routes) -> Consumer:
    raise NotImplementedError


async def nothing_is_gone() -> Sequence[str]:
    return ()


def rebuild(rig: Rig) -> SubscribedRebuild:
    return SubscribedRebuild(Accounts(), rig.parts(), no_consumer, nothing_is_gone)


async def hold_still(rig: Rig) -> None:
    async with rig.parts().transactions.begin(None) as session:
        await Checkpoints().hold_still(session, "accounts", still=True)


async def pause(rig: Rig) -> None:
    await ReadModelOps(rig.database.engine, actor="jane").pause("accounts", reason="it is moved")


async def begin(rig: Rig) -> None:
    await rebuild(rig).begin()


async def switch(rig: Rig) -> None:
    assert await rebuild(rig).switch()


async def goes_on(rig: Rig, at: Generation) -> bool:
    async with rig.parts().transactions.begin(None) as session:
        return await Checkpoints().goes_on(session, at.name, at.generation, at.state)


async def waiting(rig: Rig) -> int:
    found: int = await rig.database.scalar("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return found


ACTS: dict[str, tuple[Callable[[Rig], Awaitable[None]], State, bool]] = {
    "a pause": (pause, "live", False),
    "a rebuild that has the live one stand still": (hold_still, "live", False),
    "a rebuild that renews that": (hold_still, "filling", True),
    "a rebuild that begins": (begin, "live", True),
    "a switch": (switch, "filling", False),
}


@on_postgres
@pytest.mark.parametrize("act", ACTS)
async def test_what_stops_a_model_is_not_passed_by_transactions_that_begin_later(
    rig: Rig, act: str
) -> None:
    """Shares of the row passed it by: under load a model was never paused, nor ever switched."""
    perform, state, still_goes_on = ACTS[act]
    at = LIVE if state == "live" else FILLING
    async with rig.parts().transactions.begin(None) as session:
        for generation in (LIVE, FILLING):
            await Checkpoints().begin(session, generation)
    if state == "filling":
        await hold_still(rig)
    async with asyncio.TaskGroup() as group, rig.parts().transactions.begin(None) as first:
        assert await Checkpoints().goes_on(first, at.name, at.generation, at.state)
        group.create_task(_awaited(perform(rig)))
        await until(lambda: _are_waiting(rig, 1), "the act waits for the first transaction")
        later = group.create_task(goes_on(rig, at))
        await until(lambda: _are_waiting(rig, 2), "the later one waits behind it")

    assert later.result() is still_goes_on


@on("postgres18+asyncpg")
async def test_a_transaction_that_has_its_turn_keeps_it_for_its_next_message(rig: Rig) -> None:
    """It would wait for whoever waits for it."""
    async with rig.parts().transactions.begin(None) as session:
        await Checkpoints().begin(session, LIVE)
    async with asyncio.TaskGroup() as group, rig.parts().transactions.begin(None) as first:
        async with first.begin_nested():
            assert await Checkpoints().goes_on(first, "accounts", 1, "live")
        group.create_task(pause(rig))
        await until(lambda: _are_waiting(rig, 1), "the pause waits for the first transaction")
        async with first.begin_nested():
            assert await Checkpoints().goes_on(first, "accounts", 1, "live")

    assert not await goes_on(rig, LIVE)


@on_postgres
async def test_what_is_counted_waits_for_nobody_who_writes_the_model(rig: Rig) -> None:
    """At each telling the live model and its rebuild waited for each other's slowest transaction."""
    async with rig.parts().transactions.begin(None) as session:
        for generation in (LIVE, FILLING):
            await Checkpoints().begin(session, generation)
    async with asyncio.timeout(LIMIT), rig.parts().transactions.begin(None) as first:
        assert await Checkpoints().goes_on(first, "accounts", 2, "filling")
        await note(rig, 5)
        async with rig.parts().transactions.begin(None) as counting:
            await Checkpoints().note(counting, FILLING, events=7, target=9)
            assert await goes_on(rig, LIVE)
            assert await goes_on(rig, FILLING)

    async with rig.parts().transactions.begin(None) as session:
        found = await Checkpoints().find(session, "accounts", "filling")
    assert found is not None
    assert (found.events, found.target) == (7, 9)


@on_postgres
async def test_what_is_counted_when_a_model_is_switched_does_not_come_back(rig: Rig) -> None:
    async with rig.parts().transactions.begin(None) as session:
        for generation in (LIVE, FILLING):
            await Checkpoints().begin(session, generation)
    await hold_still(rig)
    async with asyncio.TaskGroup() as group, rig.parts().transactions.begin(None) as session:
        live = await Checkpoints().alone(session, "accounts")
        await Checkpoints().find(session, "accounts", "filling", lock=True)
        group.create_task(note(rig, 5))
        await until(lambda: _are_waiting(rig, 1), "what is counted waits for the switch")
        await Checkpoints().switch(session, live, FILLING)

    async with rig.parts().transactions.begin(None) as session:
        found = await Checkpoints().find(session, "accounts")
    assert found is not None
    assert (found.generation, found.events, found.target) == (2, 0, None)


async def note(rig: Rig, events: int) -> None:
    async with rig.parts().transactions.begin(None) as session:
        await Checkpoints().note(session, FILLING, events=events, target=9)


async def _awaited(act: Awaitable[None]) -> None:
    await act


async def _are_waiting(rig: Rig, number: int) -> bool:
    return await waiting(rig) == number
