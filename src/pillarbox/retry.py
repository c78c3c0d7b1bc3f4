"""When something that was refused, or failed, is tried again."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with jitter, up to a number of attempts."""

    attempts: int
    delay: float
    delay_max: float

    def after(self, attempt: int, chance: random.Random) -> float | None:
        """Return the seconds until the next attempt, or None when this one was the last.

        The jitter takes up to half away, so that what failed together does not return together.
        """
        if attempt >= self.attempts:
            return None
        full = min(self.delay * 2.0 ** min(attempt - 1, 60), self.delay_max)
        return full * (0.5 + chance.random() / 2)
