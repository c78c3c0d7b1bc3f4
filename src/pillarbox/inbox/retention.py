"""Whether an inbox remembers for longer than messages may come again."""

from datetime import timedelta
from typing import Final

_DAY: Final = timedelta(days=1)


def retention_warning(
    consumer: str, retention: timedelta, longest_redelivery: timedelta | None
) -> str | None:
    """Say in words that a message may come again when it is forgotten, or nothing.

    `longest_redelivery` is what the broker's settings allow; None if it never ends.

    >>> retention_warning("payments", timedelta(days=30), timedelta(days=7)) is None
    True
    """
    if longest_redelivery is not None and longest_redelivery < retention:
        return None
    if longest_redelivery is None:
        again = "at any time"
        remedy = "no retention is long enough: limit how long the broker keeps messages"
    else:
        again = f"for {_days(longest_redelivery)}"
        remedy = "keep records for longer, or messages for a shorter time"
    return (
        f"the inbox of consumer {consumer!r} remembers messages for {_days(retention)}, and the "
        f"broker may deliver one again {again}: it would take effect twice; {remedy}"
    )


def _days(length: timedelta) -> str:
    return f"{length / _DAY:g} days"
