"""Where the consumer tells what it does: metrics, tests and fault drills listen here."""

from datetime import timedelta

from pillarbox.consumer.verdict import Outcome


class Observer:
    """Hear of each step; derive and override what matters. The methods of this class do nothing.

    They run inside the consumer's loop: they must be quick and must not raise. The order for one
    batch is received, beginning, handled, committed, acknowledged.
    """

    def received(self, messages: int) -> None:
        """Messages came from the broker."""

    def beginning(self, messages: int) -> None:
        """A batch is about to be done."""

    def handled(self, event_type: str, took: timedelta) -> None:
        """A handler has returned or raised; its effects are not committed yet."""

    def committed(self, messages: int) -> None:
        """A batch's transaction is over."""

    def ended(self, outcome: Outcome, messages: int) -> None:
        """Tries have come to this."""

    def acknowledged(self, messages: int) -> None:
        """The broker was told that messages are finished."""

    def returned(self, outcome: Outcome) -> None:
        """A waiting message came back from the table, and its try has come to this."""

    def task_ended(self, name: str, *, done: bool) -> None:
        """A task was done, or failed and comes again."""

    def forgotten(self, records: int) -> None:
        """Old records of the inbox were removed."""

    def lagging(self, messages: int) -> None:
        """So many messages wait at the broker behind those in hand."""

    def revoked(self, messages: int) -> None:
        """Partitions went to another member, and with them so many messages in hand."""

    def database_away(self, error: Exception) -> None:
        """The database did not answer; the consumer waits and does the same again."""
