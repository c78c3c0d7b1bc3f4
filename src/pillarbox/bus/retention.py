"""How long a broker keeps messages for a consumer that is away."""

from datetime import timedelta
from typing import Final

# A consumer that breaks down on a Friday is mended on a Monday.
LONG_WEEKEND: Final = timedelta(days=3)


def short_retention(what: str, kept: timedelta | None, setting: str) -> list[str]:
    """Say that messages go before a consumer that was away is back; None keeps them for ever."""
    if kept is None or kept >= LONG_WEEKEND:
        return []
    loss = f"{what} keeps messages for {kept}: a consumer that is away for longer loses them"
    return [f"{loss}; raise {setting} to {LONG_WEEKEND} or more"]
