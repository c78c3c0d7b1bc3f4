"""Where a read model tells what it does: metrics, tests and fault drills listen here."""

from datetime import timedelta


class Observer:
    """Hear of each step; derive and override what matters. The methods of this class do nothing.

    They run inside the runner's loop: they must be quick and must not raise.
    """

    def read(self, events: int) -> None:
        """Rows of the log were read; nothing of them is applied yet."""

    def applying(self, events: int) -> None:
        """Rows and position are written; the transaction is not committed yet."""

    def applied(self, events: int, took: timedelta) -> None:
        """A batch is committed."""

    def held(self, tenant_id: str, key: str, error_class: str) -> None:
        """An event failed; its key waits."""

    def released(self, tenant_id: str, key: str) -> None:
        """A key that waited has caught up."""

    def database_away(self, error: Exception) -> None:
        """The database did not answer; the runner waits and does the same again."""

    def cache_away(self, error: Exception) -> None:
        """The cache did not answer; its rows are removed later."""
