"""Who wants the process for itself waits for all, and keeps out as few as it can."""

import asyncio

from pillarbox.consumer.turnstile import Turnstile


async def settle() -> None:
    """Let all tasks go as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_alone_waits_for_those_inside_and_lets_nobody_new_in() -> None:
    turnstile, leave, seen = Turnstile(), asyncio.Event(), list[str]()

    async def inside() -> None:
        async with turnstile.beside_others():
            await leave.wait()
            seen.append("left")

    async def alone() -> None:
        async with turnstile.alone():
            seen.append("alone")

    async def new() -> None:
        async with turnstile.beside_others():
            seen.append("new")

    async with asyncio.TaskGroup() as group:
        for work in (inside, alone, new):
            group.create_task(work())
            await settle()
        assert seen == []
        leave.set()

    assert seen == ["left", "alone", "new"]


async def test_while_one_that_takes_long_is_waited_for_the_others_go_on() -> None:
    """A stored task of a minute once kept every lane out, for one message that must be alone."""
    turnstile, done, seen = Turnstile(), asyncio.Event(), list[str]()

    async def task() -> None:
        async with turnstile.for_long():
            await done.wait()
            seen.append("task")

    async def alone() -> None:
        async with turnstile.alone():
            seen.append("alone")

    async def lane() -> None:
        async with turnstile.beside_others():
            seen.append("lane")

    async with asyncio.TaskGroup() as group:
        for work in (task, alone, lane):
            group.create_task(work())
            await settle()
        assert seen == ["lane"]
        done.set()

    assert seen == ["lane", "task", "alone"]
