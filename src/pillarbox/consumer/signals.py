"""What a handler may ask for instead of finishing: raised or returned, and no errors."""

from datetime import timedelta
from typing import Final

from pillarbox.errors import InvalidConfig
from pillarbox.words import words_of

LONGEST_WAIT: Final = timedelta(days=366)


class Signal(Exception):
    """A wish of a handler; whatever it wrote for this message is rolled back.

    The reason is a text, or what has one, such as an error.
    """

    def __init__(self, reason: object) -> None:
        self.reason = words_of(reason)
        super().__init__(self.reason)


class Retry(Signal):
    """Hand the message over again after this time; its key waits, and an attempt is counted.

    raise Retry(after=timedelta(seconds=30))

    A year is the longest.
    """

    def __init__(self, after: timedelta, reason: object = "the handler asked to wait") -> None:
        if after < timedelta(0):
            raise InvalidConfig("Retry.after", "is negative", "pass a time from now on")
        if after > LONGEST_WAIT:
            raise InvalidConfig(
                "Retry.after",
                f"is longer than {LONGEST_WAIT.days} days",
                "pass a shorter time, or park the message",
            )
        super().__init__(reason)
        self.after = after


class NotNow(Signal):
    """Take the message back as if it had not been tried: no attempt is counted.

    For a consumer that stands still as a whole, and is stopped: it tries again after this time until
    then. A message that alone is not ready asks for a `Retry`.
    """

    def __init__(self, after: timedelta, reason: object) -> None:
        super().__init__(reason)
        self.after = after


class Park(Signal):
    """Set the message aside for a person, without another try."""


class Drop(Signal):
    """Be done with the message without an effect; it is remembered as handled."""
