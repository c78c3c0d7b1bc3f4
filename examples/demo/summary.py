"""The last line, and whether it is good."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from examples.demo.checker import Result

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Done:
    """What the demo did to the shop; `outage_possible` if the broker was its own."""

    kills: int
    outages: int
    repeated_requests: int
    repeated_messages: int
    outage_possible: bool


def last_line(result: Result, done: Done, seconds_to_first_event: float) -> str:
    """Sum up."""
    found = result.findings
    return (
        f"orders={result.orders} events={result.events} delivered={result.delivered} "
        f"effects={result.effects} kills={done.kills} outages={done.outages} "
        f"repeated_requests={done.repeated_requests} repeated_messages={done.repeated_messages} "
        f"lost={len(found.lost)} duplicate_effects={len(found.twice)} "
        f"out_of_order={len(found.unordered)} seconds_to_first_event={seconds_to_first_event:.1f}"
    )


def complaints(result: Result, done: Done) -> Iterator[str]:
    """Say what is wrong, and what was not shown; nothing if all is well."""
    found = result.findings
    for what, lines in (("lost", found.lost), ("twice", found.twice), ("order", found.unordered)):
        yield from (f"{what}: {line}" for line in lines[:_SHOWN])
        if len(lines) > _SHOWN:
            yield f"{what}: {len(lines) - _SHOWN} more"
    counts = {"orders": result.orders, "effects": result.effects, "kills": done.kills}
    if done.outage_possible:
        counts["outages"] = done.outages
    yield from (
        f"there were no {name}, so this run proves nothing" for name, n in counts.items() if not n
    )
