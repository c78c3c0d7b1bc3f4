"""Write to a ledger and to the outbox, in one transaction each, as a process of its own.

    python -m tests.faults.workload --database URL --journal FILE --seconds 30

Each event has a number n = 1, 2, 3… of its key, drawn under a row lock. One transaction in ten is
rolled back on purpose. The journal holds the fate of each transaction that got as far as having
events: `durable`, `visible` (committed with synchronous_commit=off), `rolled-back`, or `unknown`
when the answer to COMMIT was lost; what is unknown is settled by reading the ledger at the end.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from pillarbox import JsonText, SqlAlchemyOutbox
from tests.faults.history import IDENTITY, digest
from tests.faults.orphan import end_with_parent

TOPICS: Final = ("faults.orders", "faults.payments")
_ROLLED_BACK: Final = 0.1
_AGAIN_SECONDS: Final = 0.1
_CONNECT_SECONDS: Final = 5
_DRAW: Final = text(
    "INSERT INTO ledger_key (tenant, key, n) VALUES (:tenant, :key, 1) "
    "ON CONFLICT (tenant, key) DO UPDATE SET n = ledger_key.n + 1 RETURNING n"
)
_WRITE: Final = text(
    "INSERT INTO ledger (tenant, key, n, message_id, topic, sha256) "
    "VALUES (:tenant, :key, :n, :message_id, :topic, :sha256)"
)
_NOT_DURABLE: Final = text("SET LOCAL synchronous_commit = off")


@dataclass(frozen=True, slots=True)
class Options:
    """What a workload is told on its command line."""

    database: str
    journal: Path
    seconds: float
    writers: int
    keys: int
    tenants: int
    rate: float
    not_durable: float
    padding: int
    seed: int


@dataclass(slots=True)
class Journal:
    """The fates of transactions, one line each."""

    path: Path
    counts: Counter[str] = field(default_factory=Counter)

    def note(self, fate: str, ids: Sequence[str]) -> None:
        self.counts[fate] += 1
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"fate": fate, "ids": ids}) + "\n")


class Event(NamedTuple):
    """An event to be recorded: its bytes, and the arguments that hand them over."""

    tenant: str
    key: str
    topic: str
    body: bytes | None
    said: Mapping[str, Any]


async def record(session: AsyncSession, event: Event) -> str:
    """Draw the key's next number, add the event, write the ledger; return the message's id."""
    place = {"tenant": event.tenant, "key": event.key}
    n = (await session.execute(_DRAW, place)).scalar_one()
    headers = dict(zip(IDENTITY, (event.tenant, event.key, str(n)), strict=True))
    outbox = SqlAlchemyOutbox(session, event.tenant)
    added = await outbox.add(topic=event.topic, key=event.key, headers=headers, **event.said)
    row = {"n": n, "message_id": added, "topic": event.topic, "sha256": digest(event.body)}
    await session.execute(_WRITE, {**place, **row})
    return str(added)


@dataclass(slots=True)
class Writer:
    """One of several writers; what it does follows from its seed."""

    sessions: async_sessionmaker[AsyncSession]
    options: Options
    journal: Journal
    chance: random.Random

    async def run(self, stop: asyncio.Event) -> None:
        """Write at the given rate, through restarts of the database, until told to stop."""
        pause = self.options.writers / self.options.rate
        while not stop.is_set():
            wait = self.chance.uniform(0, 2 * pause)
            if not await self._transaction():
                wait = _AGAIN_SECONDS
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), wait)

    async def _transaction(self) -> bool:
        """Run one transaction; return False when the database was not there."""
        durable = self.chance.random() >= self.options.not_durable
        undone = self.chance.random() < _ROLLED_BACK
        ids: list[str] = []
        committing = False
        try:
            async with self.sessions() as session:
                if not durable:
                    await session.execute(_NOT_DURABLE)
                await self._record(session, ids)
                if undone:
                    await SqlAlchemyOutbox(session).flush()
                    await session.rollback()
                else:
                    committing = True
                    await session.commit()
        except (DBAPIError, OSError):
            # Without a COMMIT nothing can have happened; with one, only the ledger knows.
            self.journal.note("unknown" if committing else "rolled-back", ids)
            return False
        self.journal.note("rolled-back" if undone else "durable" if durable else "visible", ids)
        return True

    async def _record(self, session: AsyncSession, ids: list[str]) -> None:
        tenant = f"tenant-{self.chance.randrange(self.options.tenants)}"
        # Some keys are hotter than others; two keys of a transaction are locked in their order.
        drawn = (self.chance.random() ** 2 for _ in range(self.chance.choice((1, 1, 1, 2))))
        for number in sorted({int(share * self.options.keys) for share in drawn}):
            for _ in range(self.chance.choice((1, 1, 2))):
                key = f"key-{number}"
                event = Event(tenant, key, self._topic(key), *self._content())
                ids.append(await record(session, event))

    def _topic(self, key: str) -> str:
        """Keep most keys in one topic; every fifth wanders between them."""
        number = int(key.partition("-")[2])
        return self.chance.choice(TOPICS) if number % 5 == 0 else TOPICS[number % len(TOPICS)]

    def _content(self) -> tuple[bytes | None, dict[str, Any]]:
        """Make a body and how it is handed over: mostly JSON, some bytes, a few tombstones."""
        kind = self.chance.random()
        if kind < 0.01:
            return None, {"tombstone": True}
        size = self._size()
        if kind < 0.1:
            body = self.chance.randbytes(size)
            return body, {"payload": body, "content_type": "application/octet-stream"}
        written = json.dumps({"exact": 1.0, "umlaut": "ä", "pad": "x" * size}, indent=1)
        return written.encode(), {"payload": JsonText(written)}

    def _size(self) -> int:
        share = self.chance.random()
        if share < 0.97:
            return self.chance.randint(100, 800) + self.options.padding
        return self.chance.randint(1_000, 20_000 if share < 0.997 else 200_000)


async def work(options: Options) -> Counter[str]:
    """Run all writers until the time is over or SIGTERM comes."""
    end_with_parent()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    url = options.database.replace("postgresql:", "postgresql+psycopg:")
    engine = create_async_engine(
        url,
        pool_size=options.writers,
        connect_args={"connect_timeout": _CONNECT_SECONDS},
    )
    sessions = async_sessionmaker(engine)
    journal = Journal(options.journal)
    writers = [
        Writer(sessions, options, journal, random.Random(f"{options.seed}/{number}"))
        for number in range(options.writers)
    ]
    try:
        async with asyncio.TaskGroup() as group:
            for writer in writers:
                group.create_task(writer.run(stop))
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), options.seconds)
            stop.set()
    finally:
        await engine.dispose()
    return journal.counts


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.workload")
    parser.add_argument("--database", required=True)
    parser.add_argument("--journal", required=True, type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--keys", type=int, default=50)
    parser.add_argument("--tenants", type=int, default=3)
    parser.add_argument("--rate", type=float, default=200.0, help="transactions a second")
    parser.add_argument("--not-durable", type=float, default=0.2, help="share that commits async")
    parser.add_argument("--padding", type=int, default=0, help="more bytes for each event")
    parser.add_argument("--seed", type=int, default=1)
    return Options(**vars(parser.parse_args(arguments)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, work, and say what became of the transactions."""
    counts = asyncio.run(work(parse(arguments)))
    print(json.dumps(counts))  # noqa: T201 - its answer to who started it
    return 0


if __name__ == "__main__":
    sys.exit(main())
