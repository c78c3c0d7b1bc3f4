"""What the environment says about the demo."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from examples.shop.flows import CHOREOGRAPHY, CONSUMERS
from pillarbox.errors import InvalidConfig

SHORTEST: Final = 20.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How long the demo runs, on whose servers, and since when it was waited for."""

    seconds: float | None
    database: str | None
    bus: str | None
    started_at: float
    flow: str = CHOREOGRAPHY

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Settings":
        return cls(
            seconds=_seconds(environ.get("PILLARBOX_DEMO_SECONDS")),
            database=environ.get("PILLARBOX_DATABASE_URL") or None,
            bus=environ.get("PILLARBOX_BUS_URL") or None,
            started_at=float(environ.get("PILLARBOX_DEMO_STARTED") or time.time()),
            flow=_flow(environ.get("PILLARBOX_DEMO_FLOW") or CHOREOGRAPHY),
        )


def _flow(value: str) -> str:
    if value not in CONSUMERS:
        problem, remedy = f"is {value!r}", f"use one of {', '.join(CONSUMERS)}"
        raise InvalidConfig("PILLARBOX_DEMO_FLOW", problem, remedy)
    return value


def _seconds(value: str | None) -> float | None:
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        raise InvalidConfig("PILLARBOX_DEMO_SECONDS", "is no number", "use 30 or more") from None
    if seconds < SHORTEST:
        problem = f"is {seconds:g}, and killing, an outage and recovery take {SHORTEST:g} s"
        raise InvalidConfig("PILLARBOX_DEMO_SECONDS", problem, f"use {SHORTEST:g} or more")
    return seconds
