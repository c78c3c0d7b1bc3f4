"""The settings of a projector: from arguments, variables or a file; what cannot work is refused."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pillarbox.errors import InvalidConfig
from pillarbox.event.rules import check_tenant

OnDead = Literal["block", "skip"]
OnSent = Literal["keep", "delete"]
ClaimMode = Literal["insert", "row"]

PREFIX: Final = "PILLARBOX_PROJECTOR_"
MAX_BATCH: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxProjectorConfig:
    """How a projector works; seconds where a plain number stands.

        OutboxProjectorConfig(batch_size=100, max_retry_attempts=5, sleep_busy=0.1, sleep_idle=2.0)

    `sleep_busy` is the longest wait between two looks while events were found lately, `sleep_idle`
    otherwise; wake-ups shorten both, and with a backlog there is no wait. `lease` is how long shards
    stay with a projector that is gone. `on_dead="skip"` lets a key go on past an event that gave up.
    `on_sent="delete"` removes delivered rows. `claim="row"` writes PUBLISHING into each row, at a
    cost. `ordered=False` gives up the order of keys: a failed event holds up nobody.
    """

    batch_size: int = 2_000
    batch_bytes: int = 8_388_608
    batches_in_hand: int = 4
    max_retry_attempts: int = 5
    retry_delay: float = 1.0
    retry_delay_max: float = 300.0
    sleep_busy: float = 0.1
    sleep_idle: float = 2.0
    default_tenant_id: str = "default"
    lease: float = 15.0
    stop_timeout: float = 20.0
    ordered: bool = True
    on_dead: OnDead = "block"
    on_sent: OnSent = "keep"
    claim: ClaimMode = "insert"

    def __post_init__(self) -> None:
        _whole("batch_size", self.batch_size, 1, MAX_BATCH)
        _whole("batch_bytes", self.batch_bytes, 1_024, 268_435_456)
        _whole("batches_in_hand", self.batches_in_hand, 1, 64)
        _whole("max_retry_attempts", self.max_retry_attempts, 1, 1_000)
        _between("retry_delay", self.retry_delay, 0.001, 86_400)
        _between("retry_delay_max", self.retry_delay_max, 0.001, 604_800)
        _between("sleep_busy", self.sleep_busy, 0.001, 3_600)
        _between("sleep_idle", self.sleep_idle, 0.001, 3_600)
        _between("lease", self.lease, 1.0, 3_600)
        _between("stop_timeout", self.stop_timeout, 0.1, 3_600)
        _not_below("sleep_idle", self.sleep_idle, "sleep_busy", self.sleep_busy)
        _not_below("retry_delay_max", self.retry_delay_max, "retry_delay", self.retry_delay)
        _one_of("ordered", self.ordered, (True, False))
        _one_of("on_dead", self.on_dead, get_args(OnDead))
        _one_of("on_sent", self.on_sent, get_args(OnSent))
        _one_of("claim", self.claim, get_args(ClaimMode))
        check_tenant(self.default_tenant_id)

    def check_against(self, publish_timeout: timedelta) -> None:
        """Refuse a lease that may end while a message is still being sent."""
        seconds = publish_timeout.total_seconds()
        if self.lease <= seconds:
            raise InvalidConfig(
                "lease",
                f"is {self.lease:g} s, and the bus may take {seconds:g} s to answer",
                "make the lease longer than the bus's publish_timeout",
            )

    @property
    def events_in_hand(self) -> int:
        """The most events that are read and not settled."""
        return self.batch_size * self.batches_in_hand

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        file: Path | str | None = None,
        **arguments: Any,
    ) -> "OutboxProjectorConfig":
        """Read a TOML file's table `[projector]`, then `PILLARBOX_PROJECTOR_*`, then arguments.

        What comes later wins. The file may also be named by `PILLARBOX_SETTINGS`.
        """
        env = os.environ if environ is None else environ
        file = file or env.get("PILLARBOX_SETTINGS") or None
        chosen: dict[str, Any] = {} if file is None else _from_file(Path(file))
        for name, kind in _KINDS.items():
            if text := env.get(PREFIX + name.upper()):
                chosen[name] = _parsed(PREFIX + name.upper(), text, kind)
        return replace(cls(), **(chosen | arguments))


_KINDS: Final[Mapping[str, Any]] = {f.name: f.type for f in fields(OutboxProjectorConfig)}


def _from_file(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text("utf-8")).get("projector", {})
    except FileNotFoundError:
        raise InvalidConfig("settings file", f"{path} is missing", "create or unset it") from None
    except (OSError, ValueError) as error:
        raise InvalidConfig("settings file", f"cannot be read: {error}", "mend it") from None
    if not isinstance(table, dict):
        raise InvalidConfig("projector", "is no table", "write its settings under [projector]")
    if unknown := sorted(set(table) - set(_KINDS)):
        raise InvalidConfig(
            f"projector.{unknown[0]}", "is no setting", f"use one of {', '.join(_KINDS)}"
        )
    return dict(table)


def _parsed(variable: str, text: str, kind: Any) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise InvalidConfig(variable, f"is {text!r}", "set it to true or false")
        return text.lower() in ("true", "1")
    if kind not in (int, float):
        return text
    try:
        return kind(text)
    except ValueError:
        remedy = "set it to a whole number" if kind is int else "set it to a number of seconds"
        raise InvalidConfig(variable, f"is {text!r}", remedy) from None


def _whole(setting: str, value: int, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidConfig(setting, f"is {value!r}", f"use a whole number from {low} to {high}")


def _between(setting: str, value: float, low: float, high: float) -> None:
    if type(value) not in (int, float) or not low <= value <= high:
        raise InvalidConfig(setting, f"is {value!r}", f"use a number from {low:g} to {high:g}")


def _not_below(setting: str, value: float, other: str, floor: float) -> None:
    if value < floor:
        raise InvalidConfig(
            setting, f"is {value:g}, and {other} is {floor:g}", f"make it at least {other}"
        )


def _one_of(setting: str, value: object, choices: tuple[object, ...]) -> None:
    if type(value) is not type(choices[0]) or value not in choices:
        names = ", ".join(map(str, choices))
        raise InvalidConfig(setting, f"is {value!r}", f"use one of {names}")
