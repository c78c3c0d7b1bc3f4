"""The settings of a projector: from arguments, variables or a file; what cannot work is refused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pillarbox.errors import InvalidConfig
from pillarbox.event.rules import check_tenant
from pillarbox.settings import (
    check_between,
    check_not_below,
    check_one_of,
    check_whole,
    chosen_settings,
)
from pillarbox.tenancy import DEFAULT_TENANT

OnDead = Literal["block", "skip"]
OnSent = Literal["keep", "delete"]
ClaimMode = Literal["insert", "row"]

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
        check_whole("batch_size", self.batch_size, 1, MAX_BATCH)
        check_whole("batch_bytes", self.batch_bytes, 1_024, 268_435_456)
        check_whole("batches_in_hand", self.batches_in_hand, 1, 64)
        check_whole("max_retry_attempts", self.max_retry_attempts, 1, 1_000)
        check_between("retry_delay", self.retry_delay, 0.001, 86_400)
        check_between("retry_delay_max", self.retry_delay_max, 0.001, 604_800)
        check_between("sleep_busy", self.sleep_busy, 0.001, 3_600)
        check_between("sleep_idle", self.sleep_idle, 0.001, 3_600)
        check_between("lease", self.lease, 1.0, 3_600)
        check_between("stop_timeout", self.stop_timeout, 0.1, 3_600)
        check_not_below("sleep_idle", self.sleep_idle, "sleep_busy", self.sleep_busy)
        check_not_below("retry_delay_max", self.retry_delay_max, "retry_delay", self.retry_delay)
        check_one_of("ordered", self.ordered, (True, False))
        check_one_of("on_dead", self.on_dead, get_args(OnDead))
        check_one_of("on_sent", self.on_sent, get_args(OnSent))
        check_one_of("claim", self.claim, get_args(ClaimMode))
        if check_tenant(self.default_tenant_id) != DEFAULT_TENANT:
            raise InvalidConfig(
                "default_tenant_id",
                f"is {self.default_tenant_id}, and rows that name no tenant have {DEFAULT_TENANT}",
                "name the tenant where events are recorded; pass tenant_id= to serve one alone",
            )

    def check_against(self, publish_timeout: timedelta) -> None:
        """Refuse a lease that may end while a message is still being sent."""
        seconds = publish_timeout.total_seconds()
        if self.lease <= seconds:
            raise InvalidConfig(
                "lease",
                f"is {self.lease:g} s, and the bus may take {seconds:g} s to answer",
                "make the lease longer than the bus's publish_timeout",
            )

    def check_readers(self, models: Sequence[str]) -> None:
        """Refuse to delete rows that a read model, which follows the log, may not have read yet."""
        if self.on_sent == "delete" and models:
            raise InvalidConfig(
                "on_sent",
                f"is 'delete', and the read model {models[0]!r} follows the log",
                "keep delivered rows, or feed the model from a subscription with topics=; a model that "
                "no application has any more goes when its row in the table readmodel is deleted",
            )

    @property
    def events_in_hand(self) -> int:
        """The most events that are read and not settled."""
        return self.batch_size * self.batches_in_hand

    @property
    def bytes_in_hand(self) -> int:
        """So many bytes of payloads are read and not settled before no more is claimed."""
        return self.batch_bytes * self.batches_in_hand

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
        return replace(cls(), **chosen_settings(cls, "projector", environ, file, arguments))
