"""A service in a process of its own: it commits events at a steady rate and notes when.

It uses Pillarbox as services do; `box.running()` wakes the projector in the other process.
"""

import argparse
import asyncio
import gc
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.backlog import TOPIC
from benchmarks.sides.by_hand import tell
from benchmarks.sides.headers import SOURCE
from pillarbox import NewEvent, Pillarbox, SqlAlchemyOutbox

_WRITERS: Final = 12
_NOTE: Final = "n" * 372


class Writer:
    """Commit transactions of a few events, each at its time."""

    def __init__(self, box: Pillarbox, given: argparse.Namespace) -> None:
        self._engine = box.engine
        self._settings = box.settings
        self._given = given
        # Two flat lists: many small objects would have the collector stop the process.
        self._ids: list[str] = []
        self._times: list[int] = []

    async def run(self) -> list[tuple[str, int]]:
        """Write until the time is over; return the id and the commit's return of what counts."""
        ticks = self._ticks()
        async with asyncio.TaskGroup() as group:
            for _ in range(_WRITERS):
                group.create_task(self._write(ticks))
        return list(zip(self._ids, self._times, strict=True))

    def _ticks(self) -> Iterator[tuple[int, float]]:
        start = asyncio.get_running_loop().time()
        step = self._given.per_transaction
        seconds = self._given.warm_up + self._given.seconds
        for number in range(0, int(self._given.rate * seconds), step):
            yield number, start + number / self._given.rate

    async def _write(self, ticks: Iterator[tuple[int, float]]) -> None:
        for number, at in ticks:
            await asyncio.sleep(at - asyncio.get_running_loop().time())
            events = [self._event(number + each) for each in range(self._given.per_transaction)]
            async with self._engine.connect() as connection:
                outbox = SqlAlchemyOutbox(connection, self._given.tenant, settings=self._settings)
                ids = await outbox.add_many(events)
                await connection.commit()
                now = time.time_ns()
                if number >= self._given.rate * self._given.warm_up:
                    self._ids.extend(map(str, ids))
                    self._times.extend([now] * len(ids))

    def _event(self, number: int) -> NewEvent:
        return NewEvent(
            topic=TOPIC,
            event_type="OrderConfirmed",
            aggregate_type="Order",
            aggregate_id=self._given.key or number % 5_000,
            payload={"order_id": number, "note": _NOTE},
        )


async def run(given: argparse.Namespace) -> None:
    """Write, and tell how fast it went."""
    box = Pillarbox(given.dsn, service=SOURCE, allow_unsafe_role=True)
    async with box.running():
        # What a service has loaded is not looked through again: a whole collection is a pause of 60 ms.
        gc.freeze()
        start = time.perf_counter()
        committed = await Writer(box, given).run()
        took = time.perf_counter() - start
    given.commits.write_text(json.dumps(committed))
    tell(events=len(committed), seconds=took - given.warm_up)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn")
    parser.add_argument("commits", type=Path)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--warm-up", type=float, default=0.0, help="seconds before, not counted")
    parser.add_argument("--per-transaction", type=int, default=1)
    parser.add_argument("--tenant", default="default")
    parser.add_argument("--key", help="one key for all events; 5,000 keys without it")
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
