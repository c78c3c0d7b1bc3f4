"""The settings of a consumer: from arguments, variables or a file; what cannot work is refused."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args

from pillarbox.errors import InvalidConfig
from pillarbox.settings import (
    check_between,
    check_not_below,
    check_one_of,
    check_whole,
    chosen_settings,
)

OnParked = Literal["hold", "pass"]
OnStale = Literal["apply", "drop", "park"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How a consumer works; seconds where a plain number stands.

        ConsumerConfig(lanes=8, batch_size=100, max_attempts=5, on_parked="hold")

    `lanes` run side by side, each with one transaction of up to `batch_size` messages at a time;
    `window` messages are in hand at most. A message that fails comes again after `retry_delay`,
    twice as long each time up to `retry_delay_max`, and is parked after `max_attempts`. What would
    wait longer than `hold_limit` waits in the table instead of in hand; a transaction whose handlers
    have taken half of it, or a second, begins with no further one. `on_parked="pass"` lets a
    key go on past a parked message. `on_stale` says what becomes of an event that is older than one
    that was applied. `keep_payload` keeps contents in the inbox, not only their hashes. A message
    that was in hand when `max_crashes` processes died is parked. `look_every` is the time between
    two looks at messages and tasks that are due. A transaction that takes longer than
    `database_timeout`, without its handlers, is given up, and its connection. `retention_days` is how long the inbox remembers;
    what is older is looked for about every `cleanup_every`.
    """

    lanes: int = 8
    batch_size: int = 100
    window: int = 1_000
    max_attempts: int = 5
    retry_delay: float = 1.0
    retry_delay_max: float = 300.0
    hold_limit: float = 10.0
    stop_timeout: float = 30.0
    look_every: float = 1.0
    max_crashes: int = 2
    on_parked: OnParked = "hold"
    on_stale: OnStale = "apply"
    keep_payload: bool = False
    retention_days: float = 30.0
    cleanup_every: float = 600.0
    database_timeout: float = 60.0

    def __post_init__(self) -> None:
        check_whole("lanes", self.lanes, 1, 1_024)
        check_whole("batch_size", self.batch_size, 1, 10_000)
        check_whole("window", self.window, 1, 100_000)
        check_whole("max_attempts", self.max_attempts, 1, 1_000)
        check_between("retry_delay", self.retry_delay, 0.001, 86_400)
        check_between("retry_delay_max", self.retry_delay_max, 0.001, 604_800)
        check_between("hold_limit", self.hold_limit, 0.001, 3_600)
        check_between("stop_timeout", self.stop_timeout, 0.1, 3_600)
        check_between("look_every", self.look_every, 0.001, 3_600)
        check_whole("max_crashes", self.max_crashes, 1, 1_000)
        check_between("retention_days", self.retention_days, 0.01, 36_500)
        check_between("cleanup_every", self.cleanup_every, 0.001, 86_400)
        check_between("database_timeout", self.database_timeout, 0.1, 3_600)
        check_not_below("retry_delay_max", self.retry_delay_max, "retry_delay", self.retry_delay)
        check_not_below("window", self.window, "batch_size", self.batch_size)
        check_one_of("on_parked", self.on_parked, get_args(OnParked))
        check_one_of("on_stale", self.on_stale, get_args(OnStale))
        check_one_of("keep_payload", self.keep_payload, (True, False))

    def check_against(self, hand_back_limit: timedelta | None) -> None:
        """Refuse to hold a message for so long that the broker gives it to another member."""
        if hand_back_limit is None:
            return
        seconds = hand_back_limit.total_seconds()
        if self.hold_limit >= seconds:
            raise InvalidConfig(
                "hold_limit",
                f"is {self.hold_limit:g} s, and the broker delivers again after {seconds:g} s",
                "make it shorter than the broker's limit",
            )

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        file: Path | str | None = None,
        **arguments: Any,
    ) -> "ConsumerConfig":
        """Read a TOML file's table `[consumer]`, then `PILLARBOX_CONSUMER_*`, then arguments.

        What comes later wins. The file may also be named by `PILLARBOX_SETTINGS`.
        """
        return replace(cls(), **chosen_settings(cls, "consumer", environ, file, arguments))
