"""Definitions that cannot work are refused where they are written; those that can are drawn."""

from collections.abc import Callable
from datetime import timedelta
from types import new_class
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from pillarbox import MemoryMessageBus, Pillarbox, Saga, step
from pillarbox.errors import InvalidConfig
from pillarbox.outbox.routing import TenantTopics
from pillarbox.saga.drawing import as_mermaid, as_text
from pillarbox.saga.machine import Part
from tests.saga.shop import (
    InventoryReleased,
    InventoryReserved,
    OrderCreated,
    OutOfStock,
    PaymentProcessed,
    ReserveInventory,
    careful_order,
)

MINUTE = timedelta(minutes=1)


def defined(steps: dict[str, Any] | None = None, **options: Any) -> type[Saga]:
    given = {"name": "s", "starts_on": OrderCreated} | options
    body = {"reserve": good()} if steps is None else steps
    return new_class("Made", (Saga,), given, lambda names: names.update(body))


def good(**changed: Any) -> Any:
    given: dict[str, Any] = {"send": lambda o: ReserveInventory(o.order_id)}
    return step(**given | {"ok": InventoryReserved} | changed)


async def coroutine(start: object) -> None: ...


async def no_arguments(self: Saga) -> None: ...


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "no steps": (lambda: defined({}), "has no steps"),
    "no name": (lambda: defined(name=None), "has no name"),
    "bad name": (lambda: defined(name="a.b"), "has a name that some broker refuses"),
    "version 0": (lambda: defined(version=0), "has the version 0"),
    "no start": (lambda: defined(starts_on=None), "does not say what starts it"),
    "start by name": (lambda: defined(starts_on="OrderCreated"), "does not say what starts it"),
    "topics as a text": (lambda: defined(topics="orders"), "has topics that are no names"),
    "ok is no class": (lambda: good(ok="InventoryReserved"), "step ok is no class of events"),
    "ok is empty": (lambda: good(ok=()), "step ok is no class of events"),
    "ok and fail alike": (
        lambda: defined({"reserve": good(fail=InventoryReserved)}),
        "has InventoryReserved as more than one reply, which cannot be told apart",
    ),
    "reply starts it": (
        lambda: defined({"reserve": good(fail=OrderCreated)}),
        "waits for OrderCreated, which starts the saga",
    ),
    "send is a coroutine": (lambda: defined({"a": good(send=coroutine)}), "no plain function"),
    "send takes nothing": (
        lambda: defined({"a": good(send=lambda: None)}),
        "with other arguments than the start event and the replies",
    ),
    "undone without undo": (
        lambda: defined({"a": good(undone=InventoryReleased)}),
        "has undone= and nothing that undoes it",
    ),
    "timeout as a number": (lambda: defined({"a": good(timeout=5)}), "has the timeout 5"),
    "timeout of nothing": (lambda: defined({"a": good(timeout=timedelta())}), "has the timeout"),
    "retries below 0": (lambda: defined({"a": good(timeout=MINUTE, retries=-1)}), "has retries -1"),
    "retries for ever": (lambda: defined({"a": good(retries=2)}), "no timeout to wait for"),
    "hidden step": (lambda: defined({"_a": good()}), "has a name that is not for steps"),
    "step over a hook": (
        lambda: defined({"completed": good()}),
        "has a name that is not for steps",
    ),
    "hook without arguments": (
        lambda: defined({"a": good(), "completed": no_arguments}),
        "has a completed that cannot be called",
    ),
    "too many steps": (
        lambda: defined({f"s{n}": good() for n in range(101)}),
        "has 101 steps > 100",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_definition_that_cannot_work_is_refused_where_it_is_written(case: str) -> None:
    make, problem = BAD[case]

    with pytest.raises(InvalidConfig, match=problem):
        make()


def box(**options: Any) -> Pillarbox:
    engine = create_async_engine("sqlite+aiosqlite://")
    return Pillarbox(engine, MemoryMessageBus(), service="shop", environ={}, **options)


def test_a_saga_listens_where_its_events_come_from_and_unknown_places_are_refused() -> None:
    class Placeless:
        order_id: str

    one = box()
    one.saga(defined({"a": good(), "b": good(ok=PaymentProcessed)}))
    assert one.consumers["saga-s"].topics == ("shop.order", "shop.inventory", "shop.payment")
    assert one.consumers["saga-s"].routes.event_types == [
        "InventoryReserved",
        "OrderCreated",
        "PaymentProcessed",
    ]
    with pytest.raises(InvalidConfig, match="does not say where Placeless comes from"):
        one.saga(defined({"a": good(fail=Placeless)}, name="t"))
    with pytest.raises(InvalidConfig, match="does not say where OrderCreated comes from"):
        box(routing=TenantTopics()).saga(defined())
    other = box(routing=TenantTopics())
    other.saga(defined(topics=["tenant-acme", "tenant-zoo"]))
    assert other.consumers["saga-s"].topics == ("tenant-acme", "tenant-zoo")


def test_a_version_that_cannot_stand_beside_the_others_is_refused() -> None:
    one = box()
    one.saga(defined())

    with pytest.raises(InvalidConfig, match="has its version 1 registered already"):
        one.saga(defined())
    with pytest.raises(InvalidConfig, match="starts on another event than its other versions"):
        one.saga(defined(version=2, starts_on=OutOfStock))
    with pytest.raises(InvalidConfig, match="is no class of sagas"):
        one.saga(Saga)
    assert list(one.sagas.versions["s"]) == [1]


def test_a_derived_version_keeps_the_steps_of_its_base_in_their_order() -> None:
    first = defined({"a": good(), "b": good()})

    second: Any = new_class(
        "Second",
        (first,),
        {"name": "s", "version": 2, "starts_on": OrderCreated},
        lambda names: names.update({"c": good()}),
    )

    assert second.definition.step_names == ["a", "b", "c"]


def test_a_definition_is_drawn_as_text_and_as_mermaid() -> None:
    kind = careful_order(box())

    assert as_text(kind) == (
        "place-order 1, started by OrderCreated\n"
        "  1. reserve  ok InventoryReserved; fail OutOfStock; within 5 min, sent 2 times; "
        "undone by InventoryReleased\n"
        "  2. charge   ok PaymentProcessed; fail PaymentRefused; within 5 min"
    )
    assert as_mermaid(kind).splitlines() == [
        "flowchart TD",
        '    start(["OrderCreated"]) --> s0',
        '    s0["reserve"]',
        '    u0["undo reserve"]',
        '    s1["charge"]',
        "    completed([COMPLETED])",
        "    compensated([COMPENSATED])",
        '    s0 -->|"InventoryReserved"| s1',
        '    s0 -->|"OutOfStock"| compensated',
        '    s0 -->|"within 5 min, sent 2 times"| u0',
        '    u0 -->|"InventoryReleased"| compensated',
        "    u0 -->|no reply| stuck([STUCK])",
        '    s1 -->|"PaymentProcessed"| completed',
        '    s1 -->|"PaymentRefused"| u0',
        '    s1 -->|"within 5 min"| u0',
    ]


def test_a_wait_doubles_with_each_message_up_to_an_hour() -> None:
    found = defined({"a": good(timeout=timedelta(minutes=20), retries=5)}).definition.steps[0]

    assert [found.wait(part, n) for part, n in ((_DO, 1), (_DO, 2), (_DO, 3), (_UNDO, 1))] == [
        timedelta(minutes=20),
        timedelta(minutes=40),
        timedelta(hours=1),
        timedelta(minutes=1),
    ]


_DO, _UNDO = Part.DO, Part.UNDO
