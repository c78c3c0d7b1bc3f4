"""Run two consumers of a bank until SIGTERM, and let the process end at a named point.

    python -m tests.faults.consumers.member_process --database URL --bus URL --topic bank.account \
        --name m1 --trace FILE --fail-point committed:3 [--signal SIGSTOP]

The handler books a deposit: the balance and the trail of its account, and a row for the effect. An
account that is closed lets its deposits wait; every so often a deposit waits or fails at its first
attempt, the latter after it was booked.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from sqlalchemy import text

from pillarbox import ConsumerConfig, Context, Pillarbox, Retry
from tests.faults.consumers.buses import drill_bus
from tests.faults.consumers.points import FREEZING, POINTS
from tests.faults.consumers.saboteur import Saboteur
from tests.faults.orphan import end_with_parent
from tests.faults.points import FailPoint
from tests.faults.trace import Trace

CONSUMERS: Final = ("accounts", "mirror")
DEPOSITED: Final = "Deposited"
WAIT: Final = timedelta(seconds=1.1)
_CLOSED: Final = text("SELECT count(*) FROM closed WHERE account = :account")
# The effect is numbered after the account's row is locked: numbers are in the order of effects.
_BOOK: Final = text("""
    WITH booked AS (
        INSERT INTO account (consumer, tenant, account, balance, trail)
        VALUES (:consumer, :tenant, :account, :amount, md5('/' || :message_id))
        ON CONFLICT (consumer, tenant, account) DO UPDATE SET
            balance = account.balance + excluded.balance,
            trail = md5(account.trail || '/' || :message_id)
        RETURNING balance
    )
    INSERT INTO effect (consumer, tenant, account, n, message_id, balance, attempt, process)
    SELECT :consumer, :tenant, :account, :n, :message_id, balance, :attempt, :process FROM booked
""")


class Refused(Exception):
    """The bank's bad days."""


def config(options: argparse.Namespace) -> ConsumerConfig:
    """Wait shortly, never give up: kills must not be taken for a message's fault."""
    return ConsumerConfig(
        lanes=4,
        batch_size=options.batch,
        window=200,
        max_attempts=1_000,
        retry_delay=0.05,
        retry_delay_max=0.5,
        hold_limit=options.hold_limit,
        stop_timeout=10.0,
        look_every=0.2,
        max_crashes=1_000,
    )


def handler(options: argparse.Namespace, saboteur: Saboteur) -> Any:
    """Make the handler of deposits."""

    async def book(event: dict[str, Any], ctx: Context) -> None:
        saboteur.called(ctx)
        account = str(ctx.envelope.key)
        place = {"consumer": ctx.consumer, "tenant": ctx.tenant_id, "account": account}
        late = ctx.attempt == 1 and options.waits and event["n"] % options.waits == 0
        if late or await ctx.session.scalar(_CLOSED, {"account": account}):
            if ctx.attempt > 1:  # what waits longer than it is held comes out of the table
                saboteur.reach("mid-return")
            raise Retry(WAIT)
        row = {"n": event["n"], "amount": event["amount"], "message_id": ctx.envelope.event_id}
        await ctx.session.execute(
            _BOOK, {**place, **row, "attempt": ctx.attempt, "process": options.name}
        )
        saboteur.reach("in-handler")
        if options.flaky and event["n"] % options.flaky == 0 and ctx.attempt == 1:
            raise Refused
        if account == options.poisoned:
            raise Refused

    return book


async def run(options: argparse.Namespace, trace: Trace) -> None:
    """Consume until SIGTERM."""
    point = FailPoint.parse(options.fail_point, POINTS | FREEZING) if options.fail_point else None
    saboteur = Saboteur(trace, point, signal.Signals[options.signal])
    bus = drill_bus(options.bus, options.admin, patient=options.patient, hurried=options.hurried)
    box = Pillarbox(options.database, bus, service="bank")
    saboteur.watch(box.engine)
    consumers = [
        box.consumer(name, [options.topic], config=config(options), observer=saboteur)
        for name in options.consumers.split(",")
    ]
    for consumer in consumers:
        consumer.on(options.event)(handler(options, saboteur))

    def stop() -> None:
        for consumer in consumers:
            consumer.stop()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    end_with_parent()
    trace.note("started", pid=os.getpid())
    async with asyncio.TaskGroup() as group:
        for consumer in consumers:
            group.create_task(consumer.run_forever())
    await bus.close()
    await box.engine.dispose()
    trace.note("stopped")


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    logging.basicConfig(level=logging.WARNING)
    parser = argparse.ArgumentParser(prog="python -m tests.faults.consumers.member_process")
    parser.add_argument("--database", required=True)
    parser.add_argument("--bus", required=True)
    parser.add_argument("--admin", default="")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--trace", required=True, type=Path)
    parser.add_argument("--consumers", default=",".join(CONSUMERS))
    parser.add_argument("--event", default=DEPOSITED)
    parser.add_argument("--fail-point", help=f"NAME:N[:SECONDS], one of {', '.join(POINTS)}")
    parser.add_argument("--signal", default="SIGKILL")
    parser.add_argument("--patient", type=int, default=0, help="let slow members be")
    parser.add_argument("--hurried", type=int, default=0, help="let slow members be missed soon")
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--hold-limit", type=float, default=1.0)
    parser.add_argument("--flaky", type=int, default=0, help="every so many fail at first")
    parser.add_argument("--waits", type=int, default=0, help="every so many ask to wait at first")
    parser.add_argument("--poisoned", help="the account whose deposits always fail")
    options = parser.parse_args(arguments)
    with Trace.opened(options.trace, options.name) as trace:
        asyncio.run(run(options, trace))
    return 0


if __name__ == "__main__":
    sys.exit(main())
