"""Where commands tell what becomes of them: metrics and tests listen here."""

from typing import Final, Literal

from pillarbox.idempotency.errors import (
    AnswerNotKept,
    CommandInProgress,
    CommandNotCommitted,
    CommandUnknown,
    IdempotencyError,
    IdempotencyKeyReused,
    NotAuthorized,
    TooManyKeys,
)

Outcome = Literal[
    "executed", "replayed", "in_progress", "mismatch", "over_quota", "answer_not_kept", "refused",
    "invalid", "undone", "unknown",
]  # fmt: skip

_OUTCOMES: Final[dict[type[IdempotencyError], Outcome]] = {
    CommandInProgress: "in_progress",
    IdempotencyKeyReused: "mismatch",
    TooManyKeys: "over_quota",
    AnswerNotKept: "answer_not_kept",
    NotAuthorized: "refused",
    CommandNotCommitted: "undone",
    CommandUnknown: "unknown",
}


class Observer:
    """Hear of each step; derive and override what matters. The methods of this class do nothing.

    They run inside the request: they must be quick and must not raise.
    """

    def ended(self, outcome: Outcome) -> None:
        """A request with a key has come to this, and is about to be answered.

        `executed` is told after the commit. `undone` means that nothing took effect: a server
        error, or a commit that the database refused. `refused` is the application's word: a
        dependency, or `authorize`, did not let the request pass. `invalid` requests have a key or
        a body that cannot be served.
        """

    def forgotten(self, keys: int) -> None:
        """Keys whose time was over were deleted."""

    def not_forgotten(self, error: Exception) -> None:
        """The database did not let expired keys be deleted; it is tried again."""


def outcome_of(error: IdempotencyError) -> Outcome:
    """Say what a problem means for its request."""
    return _OUTCOMES.get(type(error), "invalid")
