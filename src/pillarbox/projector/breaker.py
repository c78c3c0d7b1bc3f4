"""Breakers: after a destination's failure, wait before asking it again."""

from dataclasses import dataclass
from typing import Final

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
# A pause of this length says that a destination has failed again and again, for some seconds.
LONG_PAUSE: Final = 1.0


@dataclass(slots=True)
class Breaker:
    """Closed while a destination answers; open until `again_at` after it failed.

    When the pause is over, one try is let through: its outcome closes the breaker or doubles the
    pause. Times are the loop's, in seconds.
    """

    pause: float = 0.0
    again_at: float = 0.0
    trying: bool = False

    @property
    def closed(self) -> bool:
        """Whether messages flow freely."""
        return self.pause == 0.0

    @property
    def is_lasting(self) -> bool:
        """Whether the destination has been away for some seconds, and may be for hours."""
        return self.pause >= LONG_PAUSE

    def lets_through(self, now: float) -> bool:
        """Tell whether a message may be sent now; the first after a pause is the try."""
        if self.closed:
            return True
        if self.trying or now < self.again_at:
            return False
        self.trying = True
        return True

    def failed(self, now: float) -> None:
        """Note a failure; several of one batch count as one."""
        if self.trying or self.closed:
            self.pause = min(max(self.pause * 2, FIRST_PAUSE), LONGEST_PAUSE)
            self.again_at = now + self.pause
        self.trying = False

    def succeeded(self) -> None:
        """Note an answer: close."""
        self.pause, self.again_at, self.trying = 0.0, 0.0, False


class TopicBreakers(dict[str, Breaker]):
    """The breakers of topics that failed; one that answers again has none."""

    def lets_through(self, topic: str, now: float) -> bool:
        """Tell whether a message may be sent to a topic now."""
        breaker = self.get(topic)
        return breaker is None or breaker.lets_through(now)

    def failed(self, topic: str, now: float) -> None:
        """Note that a topic failed."""
        self.setdefault(topic, Breaker()).failed(now)

    def lasting(self) -> set[str]:
        """Name the topics that are not to be had for longer."""
        return {topic for topic, breaker in self.items() if breaker.is_lasting}

    def not_tried(self, topic: str) -> None:
        """Let another message be the try of a topic: the one that was chosen is not sent."""
        if topic in self:
            self[topic].trying = False
