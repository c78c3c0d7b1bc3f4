"""Where sagas tell what happens to them: metrics, tests and fault drills listen here."""

from pillarbox.saga.machine import State, Verdict


class SagaObserver:
    """Hear of sagas; derive and override what matters. The methods of this class do nothing.

    They run after the commit, inside the consumer's loop: they must be quick and must not raise.
    """

    def started(self, saga: str) -> None:
        """A saga began."""

    def repeated_start(self, saga: str) -> None:
        """A start event came that has started its saga before."""

    def stood(self, saga: str, state: State) -> None:
        """A saga has ended, or stands STUCK."""

    def replied(self, saga: str, verdict: Verdict) -> None:
        """A reply came to a saga, and was this to it."""

    def unknown(self, saga: str) -> None:
        """A reply came that names no saga of this service."""

    def rang(self, saga: str, number: int) -> None:
        """So many timers and wishes were taken together."""

    def troubled(self, saga: str, error: Exception) -> None:
        """A saga could not go on when its time came; it is tried again."""
