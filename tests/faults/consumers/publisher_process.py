"""Publish deposits of many accounts, shuffled, some of them again, until SIGTERM.

    python -m tests.faults.consumers.publisher_process --bus URL --topic bank.account --journal FILE

Each account's deposits are numbered n = 1, 2, 3… and are published in that order. Two tenants have
the same accounts and the same message ids with other amounts. The journal has a line for each deposit
that the broker has accepted. At the end each account gets one more deposit: when that has come into
effect, everything before it has been seen.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pillarbox import MessageEnvelope
from pillarbox.bus.outcome import ACCEPTED
from tests.faults.consumers.buses import drill_bus
from tests.faults.consumers.member_process import DEPOSITED
from tests.faults.orphan import end_with_parent

TENANTS: Final = ("north", "south")
_BATCH: Final = 8
_AGAIN_SECONDS: Final = 0.2

Account = tuple[str, str]


@dataclass(slots=True)
class Deposits:
    """What was deposited so far, and what comes next."""

    options: argparse.Namespace
    chance: random.Random
    last: dict[Account, int] = field(default_factory=dict)
    published: dict[tuple[str, str], MessageEnvelope] = field(default_factory=dict)
    copies: int = 0

    def __post_init__(self) -> None:
        accounts = [f"{self.options.prefix}-{n}" for n in range(self.options.accounts)]
        self.last = {(tenant, account): 0 for tenant in TENANTS for account in accounts}

    @property
    def complete(self) -> bool:
        most: int = self.options.most
        return most > 0 and min(self.last.values()) >= most

    def next_batch(self) -> list[MessageEnvelope]:
        """Take some accounts at random, each once: the next deposit, or an old one again."""
        most = self.options.most
        open_ones = [a for a, n in self.last.items() if not most or n < most]
        drawn = self.chance.sample(open_ones, min(_BATCH, len(open_ones)))
        return [self._again(account) or self.next_of(account) for account in drawn]

    def next_of(self, account: Account) -> MessageEnvelope:
        tenant, key = account
        n = self.last[account] = self.last[account] + 1
        return MessageEnvelope(
            event_id=_id_of(key, n),
            event_type=DEPOSITED,
            payload={"n": n, "amount": self.chance.randint(1, 1_000)},
            topic=self.options.topic,
            key=key,
            tenant_id=tenant,
        )

    def _again(self, account: Account) -> MessageEnvelope | None:
        if self.last[account] == 0 or self.chance.random() >= self.options.copies:
            return None
        tenant, key = account
        return self.published[tenant, _id_of(key, self.chance.randint(1, self.last[account]))]

    def lines(self, batch: Sequence[MessageEnvelope]) -> Iterator[str]:
        """Note what is published for the first time."""
        for message in batch:
            place = (message.tenant_id, message.event_id)
            if place in self.published:
                self.copies += 1
                continue
            self.published[place] = message
            said = {"tenant": message.tenant_id, "account": message.key, **message.payload}
            yield json.dumps({**said, "message_id": message.event_id}) + "\n"


def _id_of(key: str, n: int) -> str:
    return f"{key}-{n}"


async def publish(bus: Any, batch: Sequence[MessageEnvelope]) -> None:
    """Publish until everything is accepted; no key is in a batch twice."""
    left = list(batch)
    while True:
        said = await bus.publish(left)
        left = [m for m, outcome in zip(left, said, strict=True) if outcome != ACCEPTED]
        if not left:
            return
        await asyncio.sleep(_AGAIN_SECONDS)


async def run(options: argparse.Namespace) -> Deposits:
    """Publish at the given rate until told to stop, or until each account has its number."""
    end_with_parent()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    bus = drill_bus(options.bus, options.admin)
    deposits = Deposits(options, random.Random(options.seed))
    with options.journal.open("a", encoding="utf-8", buffering=1) as journal:
        while not (stop.is_set() or deposits.complete):
            batch = deposits.next_batch()
            await publish(bus, batch)
            journal.writelines(deposits.lines(batch))
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), len(batch) / options.rate)
        last = [deposits.next_of(account) for account in deposits.last]
        for place in range(0, len(last), _BATCH):
            batch = last[place : place + _BATCH]
            await publish(bus, batch)
            journal.writelines(deposits.lines(batch))
    await bus.close()
    return deposits


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, publish, and say how much."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.consumers.publisher_process")
    parser.add_argument("--bus", required=True)
    parser.add_argument("--admin", default="")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--journal", required=True, type=Path)
    parser.add_argument("--accounts", type=int, default=8)
    parser.add_argument("--prefix", default="account", help="what the names of accounts begin with")
    parser.add_argument("--rate", type=float, default=80.0, help="messages a second")
    parser.add_argument("--copies", type=float, default=0.15, help="share that comes again")
    parser.add_argument("--most", type=int, default=0, help="deposits of each account, then end")
    parser.add_argument("--seed", type=int, default=1)
    deposits = asyncio.run(run(parser.parse_args(arguments)))
    said = {"published": len(deposits.published), "copies": deposits.copies}
    print(json.dumps(said))  # noqa: T201 - its answer to who started it
    return 0


if __name__ == "__main__":
    sys.exit(main())
