"""The settings of a read model: from arguments, variables or a file; what cannot work is refused."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from pillarbox.settings import (
    check_between,
    check_not_below,
    check_one_of,
    check_whole,
    chosen_settings,
)

History = Literal["whole", "kept"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadModelConfig:
    """How a read model follows the log; seconds where a plain number stands.

        ReadModelConfig(batch_size=1_000, look_every=0.5, history="whole")

    A transaction applies up to `batch_size` events. `look_every` is the longest wait between two looks;
    commits of the same process shorten it. An event that fails holds its key and comes again after
    `retry_delay`, twice as long each time up to `retry_delay_max`. `history="whole"` refuses to begin
    where events before the oldest row are gone, and to go on where some were not read; "kept" takes what
    is there. A rebuild from a subscription waits up to `fill_timeout` for a silent broker to say that it
    has nothing more. A model that follows a subscription tells how it stands every `tell_every`, and at
    once when it falls behind.
    """

    batch_size: int = 1_000
    look_every: float = 0.5
    retry_delay: float = 1.0
    retry_delay_max: float = 300.0
    history: History = "whole"
    fill_timeout: float = 120.0
    tell_every: float = 5.0

    def __post_init__(self) -> None:
        check_whole("batch_size", self.batch_size, 1, 10_000)
        check_between("look_every", self.look_every, 0.001, 3_600)
        check_between("retry_delay", self.retry_delay, 0.001, 86_400)
        check_between("retry_delay_max", self.retry_delay_max, 0.001, 604_800)
        check_not_below("retry_delay_max", self.retry_delay_max, "retry_delay", self.retry_delay)
        check_between("fill_timeout", self.fill_timeout, 0.001, 86_400)
        check_between("tell_every", self.tell_every, 0.001, 3_600)
        check_one_of("history", self.history, get_args(History))

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        file: Path | str | None = None,
        **arguments: Any,
    ) -> "ReadModelConfig":
        """Read a TOML file's table `[readmodel]`, then `PILLARBOX_READMODEL_*`, then arguments.

        What comes later wins. The file may also be named by `PILLARBOX_SETTINGS`.
        """
        return replace(cls(), **chosen_settings(cls, "readmodel", environ, file, arguments))
