"""Calls of Pulsar's client run in threads that keep no process alive."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from pillarbox.bus.pulsar.threads import Threads

NAME = "test-pulsar"


@pytest.fixture
async def threads() -> AsyncIterator[Threads]:
    made = Threads(2, NAME)
    yield made
    made.close()
    await asyncio.to_thread(made.join)


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(NAME)]


async def test_answers_and_errors_come_back_to_who_asked(threads: Threads) -> None:
    assert await threads.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await threads.run(divmod, 7, 0)
    assert await threads.run(len, "abc") == 3


async def test_there_are_no_more_threads_than_asked_for_and_each_may_be_left(
    threads: Threads,
) -> None:
    gate = threading.Event()
    calls = [threads.run(gate.wait, 10) for _ in range(5)]

    assert [thread.daemon for thread in running()] == [True, True]
    gate.set()
    assert await asyncio.gather(*calls) == [True] * 5


async def test_closing_cancels_what_has_not_begun_and_lets_the_rest_end(threads: Threads) -> None:
    gate, begun = threading.Event(), threading.Barrier(3)

    def work() -> bool:
        begun.wait(10)
        return gate.wait(10)

    under_way = [threads.run(work), threads.run(work)]
    await asyncio.to_thread(begun.wait, 10)
    waiting = threads.run(len, "abc")
    threads.close()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(RuntimeError):
        threads.run(len, "abc")
    gate.set()
    assert await asyncio.gather(*under_way) == [True, True]
    await asyncio.to_thread(threads.join)
    assert running() == []


async def test_a_call_that_nobody_waits_for_any_more_is_left_out(threads: Threads) -> None:
    gate, done = threading.Event(), list[str]()
    held = [threads.run(gate.wait, 10) for _ in range(2)]
    left = threads.run(done.append, "left")
    left.cancel()
    await asyncio.sleep(0)  # in its next turn the loop tells the call of it
    gate.set()
    await asyncio.gather(*held)
    await threads.run(done.append, "last")

    assert done == ["last"]
