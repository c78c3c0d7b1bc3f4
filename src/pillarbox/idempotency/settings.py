"""How long and how much is kept of commands, and which of them need a key."""

from dataclasses import dataclass
from datetime import timedelta

from pillarbox.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class IdempotencySettings:
    """The policy that clients are told.

    `required` refuses commands without a key. `ttl` is how long an answer can be had again;
    `quota` how many keys of one caller are kept at a time. Bodies over `request_limit` bytes are
    refused, answers over `answer_limit` are not kept. Server errors (5xx) are not recorded and
    their transaction is undone, so that a repetition executes, unless `keep_server_errors`.
    `lease` is how long a command of the weaker mode may be silent before another takes it over.
    """

    required: bool = False
    ttl: timedelta = timedelta(hours=24)
    quota: int = 10_000
    request_limit: int = 1024 * 1024
    answer_limit: int = 256 * 1024
    keep_server_errors: bool = False
    retry_after: timedelta = timedelta(seconds=1)
    lease: timedelta = timedelta(seconds=30)
    docs_url: str | None = None

    def __post_init__(self) -> None:
        for name in ("ttl", "retry_after", "lease"):
            if getattr(self, name) < timedelta(seconds=1):
                raise InvalidConfig(name, "is under a second", "set it to one second or more")
        for name in ("quota", "request_limit", "answer_limit"):
            if getattr(self, name) < 1:
                raise InvalidConfig(name, "is under 1", "set it to a positive number")

    @property
    def retry_after_seconds(self) -> int:
        """The header's value: whole seconds."""
        return round(self.retry_after.total_seconds())
