"""Code of the user that fails where nobody looks for it: its message pays, and the loop goes on."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from pillarbox.consumer.context import Context
from pillarbox.consumer.named_tasks import task_of
from pillarbox.consumer.signals import LONGEST_WAIT, Drop, NotNow, Park, Retry, Signal
from pillarbox.consumer.verdict import AskedToWait, Untouched
from pillarbox.consumer.work import end_of
from tests.consumer.rig import QUICK, Effect, Shop, record
from tests.support.database import on
from tests.support.waiting import until

BOTH = on("postgres18+asyncpg", "sqlite+aiosqlite")

ONCE = replace(QUICK, lanes=1, max_attempts=1)
COUNTRIES = {1: "AT"}


class Order(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def of_a_known_country(cls, value: int) -> int:
        return value if COUNTRIES[value] else 0


class Size(Enum):
    SMALL = 1

    @classmethod
    def _missing_(cls, value: object) -> "Size":
        raise LookupError(value)


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("in this test")


class HalfMade(Retry):
    """A signal that knows its parts by itself, and has forgotten one."""

    def __init__(self, after: timedelta) -> None:
        self.after = after


class Never(Retry):
    """A signal with a time of its own making."""

    def __init__(self, after: timedelta) -> None:
        self.after, self.reason = after, "in this test"


class NotEver(NotNow):
    def __init__(self, after: timedelta) -> None:
        self.after, self.reason = after, "in this test"


async def why(shop: Shop) -> str:
    found: str = await shop.database.scalar(
        "SELECT reason || ': ' || error_message FROM inbox_parked"
    )
    return found


@BOTH
async def test_a_validator_that_raises_parks_its_message(shop: Shop) -> None:
    """What was no ValueError passed through the receiving task, and ended the process."""

    async def handler(event: Order, ctx: Context) -> None:
        ctx.session.add(Effect(message_id=ctx.envelope.event_id, key="", n=event.n))

    shop.send("bad", key="bad", n=2)
    shop.send("good", key="good", n=1)
    await shop.loop(handler, ONCE).drain()

    assert await shop.effects() == ["good"]
    assert await why(shop) == "invalid-field: payload is refused by Order (KeyError)"


@BOTH
async def test_an_enumeration_that_raises_parks_its_message(shop: Shop) -> None:
    async def handler(event: dict[str, Size], ctx: Context) -> None:
        ctx.session.add(Effect(message_id=ctx.envelope.event_id, key="", n=event["n"].value))

    shop.send("bad", key="bad", n=2)
    shop.send("good", key="good", n=1)
    await shop.loop(handler, ONCE).drain()

    assert await shop.effects() == ["good"]
    assert await why(shop) == "invalid-field: payload[…] is no Size"


@BOTH
@pytest.mark.parametrize("signal", [Park, partial(Retry, timedelta(0))])
async def test_a_signal_takes_an_error_for_its_reason(
    shop: Shop, signal: Callable[[Exception], Signal]
) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        raise signal(LookupError("no such customer"))

    shop.send("m1")
    await shop.loop(handler, ONCE).drain()

    assert await why(shop) == "handler-asked: no such customer"


def test_every_signal_says_its_reason_in_words() -> None:
    assert Drop(7).reason == str(Drop(7)) == "7"
    assert Park(Speechless()).reason == "Speechless, whose text raised RuntimeError"


@BOTH
async def test_an_error_that_cannot_say_what_it_is_fails_its_message_alone(shop: Shop) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        if ctx.envelope.event_id == "bad":
            raise Speechless

    for message_id in ("m0", "bad", "m1"):
        shop.send(message_id, key=message_id)
    await shop.loop(handler, ONCE).drain()

    assert sorted(await shop.effects()) == ["m0", "m1"]
    assert await why(shop) == "handler-failed: Speechless, whose text raised RuntimeError"


@BOTH
async def test_a_signal_without_its_parts_is_a_failure_like_others(shop: Shop) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        raise HalfMade(timedelta(seconds=1))

    shop.send("m1")
    await shop.loop(handler, ONCE).drain()

    assert await shop.count("inbox_parked", "error_class = 'HalfMade'") == 1


@BOTH
@pytest.mark.parametrize("after", [timedelta.max, timedelta.min])
async def test_a_signal_whose_time_the_calendar_has_no_room_for_ends_nobody(
    shop: Shop, after: timedelta
) -> None:
    """A subclass that skips the check of `Retry` ended the consumer by an OverflowError."""
    tries: list[str] = []

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        tries.append(ctx.envelope.event_id)
        if len(tries) == 1:
            raise Never(after)
        await record(event, ctx)

    shop.send("m1")
    await shop.loop(handler, QUICK).drain()

    in_the_table = await shop.count("inbox_parked", "state = 'waiting' AND attempts = 1")
    assert in_the_table == (after > timedelta(0))
    assert await shop.effects() == ([] if in_the_table else ["m1"])


def test_whoever_asks_to_wait_waits_for_a_year_at_most() -> None:
    assert end_of(Never(timedelta.max)) == AskedToWait(LONGEST_WAIT, "in this test")
    assert end_of(NotEver(timedelta.max)) == Untouched(LONGEST_WAIT)
    assert end_of(NotEver(timedelta.min)) == Untouched(timedelta(0))


@BOTH
async def test_a_task_whose_error_cannot_say_what_it_is_comes_again(shop: Shop) -> None:
    tries: list[int] = []

    async def mail() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise Speechless

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        ctx.after_commit("mail")

    async def done() -> bool:
        return shop.seen.tasks == [("mail", False), ("mail", True)]

    shop.send("m1")
    async with shop.running(shop.loop(handler, tasks={"mail": task_of("mail", mail)})):
        await until(done, "the task is done")

    assert await shop.count("inbox_task") == 0
