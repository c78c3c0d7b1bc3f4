"""Measure several ways of doing a thing side by side.

Other work on the machine slows all sides alike only if they take turns quickly. So a round is cut
into short blocks, the sides take turns block by block, and who goes first rotates.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import median

Block = Callable[[], Awaitable[Sequence[float]]]
"""Do a block of work and return the seconds of each operation, or one average."""

Operation = Callable[[int], Awaitable[object]]
"""Do the work once, as the writer of this number."""


async def alternate(
    sides: Mapping[str, Block],
    *,
    rounds: int,
    blocks: int,
    before_round: Callable[[], Awaitable[object]],
) -> dict[str, list[float]]:
    """Return each side's median seconds per operation, one for each round.

    A first round is run and thrown away: it fills pools, caches and prepared statements.
    """
    values: dict[str, list[float]] = {name: [] for name in sides}
    turns = itertools.cycle(_orders(tuple(sides)))
    for number in range(rounds + 1):
        await before_round()
        seen: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(blocks):
            for name in next(turns):
                seen[name].extend(await sides[name]())
        if number:
            for name, seconds in seen.items():
                values[name].append(median(seconds))
    return values


def _orders(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return every rotation and its reverse, so that nobody always follows the same neighbour."""
    turned = [names[start:] + names[:start] for start in range(len(names))]
    return [order for names in turned for order in (names, names[::-1])]


def one_by_one(operation: Operation, count: int) -> Block:
    """Make a block of operations one after the other; each is timed."""

    async def block() -> list[float]:
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            await operation(0)
            seconds.append(time.perf_counter() - start)
        return seconds

    return block


def side_by_side(operation: Operation, count: int, *, writers: int) -> Block:
    """Make a block of operations shared by concurrent writers; the whole is timed.

    The value is the block's seconds divided by its operations: the inverse of the throughput.
    """

    async def writer(number: int) -> None:
        for _ in range(count // writers):
            await operation(number)

    async def block() -> list[float]:
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(writers):
                group.create_task(writer(number))
        return [(time.perf_counter() - start) / (count // writers * writers)]

    return block
