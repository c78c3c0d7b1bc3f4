"""The keys of the demo, from a terminal."""

import asyncio
import os
import termios
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TextIO, cast

import pytest

from examples.demo.keyboard import keys
from examples.demo.plan import Plan
from examples.demo.stage import FIRST_SECONDS, Stage
from examples.demo.view import Screen
from tests.support.waiting import until


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, TextIO]]:
    """A terminal as standard input, and the end at which a person types."""
    person, program = os.openpty()
    with os.fdopen(program) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield person, stdin
    os.close(person)


async def test_keys_are_heard_one_by_one_without_a_return(terminal: tuple[int, TextIO]) -> None:
    person, stdin = terminal
    before, heard = termios.tcgetattr(stdin.fileno()), list[str]()

    async def all_are_heard() -> bool:
        return heard == ["k", "b", "q"]

    with keys(heard.append) as there:
        os.write(person, b"kBq")
        await until(all_are_heard, "every key is heard once")

    assert there
    assert termios.tcgetattr(stdin.fileno()) == before


async def test_without_a_terminal_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    heard = list[str]()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with keys(heard.append) as there:
            os.write(writing, b"q")
            await asyncio.sleep(0)
    os.close(writing)

    assert (there, heard) == (False, [])


class Acts:
    """What keys ask for, noted."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def kill(self) -> None:
        self.done.append("kill")

    async def stop_broker(self) -> None:
        self.done.append("stop the broker")

    async def repeat(self) -> None:
        self.done.append("repeat")

    async def can_repeat(self) -> bool:
        return False

    @property
    def all(self) -> Sequence[Callable[[], Awaitable[None]]]:
        return (self.kill, self.repeat, self.stop_broker)


def stage_with(acts: Acts) -> Stage:
    nothing = cast("Any", None)
    return Stage("", {}, nothing, nothing, cast("Any", acts), Plan.of(None), Screen(), 0.0)


async def test_each_key_does_again_what_the_demo_did_until_the_end_is_asked_for() -> None:
    acts = Acts()
    stage = stage_with(acts)

    async with asyncio.TaskGroup() as group:
        for key in "kbrkxqkbr":
            stage._pressed(group, key)

    assert acts.done == ["kill", "stop the broker", "repeat", "kill"]
    assert stage.ended.is_set()


async def test_whoever_ends_it_before_the_first_delivery_is_not_kept_waiting() -> None:
    acts = Acts()
    stage = stage_with(acts)
    stage._pressed(cast("Any", None), "q")

    async with asyncio.timeout(FIRST_SECONDS / 3):
        await stage._trouble()

    assert acts.done == []
