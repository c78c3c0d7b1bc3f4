"""Caution after a death: smaller claims, until the events that its victim had in flight are passed."""

from dataclasses import dataclass, field

from pillarbox.projector.store import Suspects


@dataclass(slots=True)
class Caution:
    """Know whom to suspect, and for how many events more."""

    _suspects: Suspects = field(default_factory=Suspects)
    _left: int = 0

    def __bool__(self) -> bool:
        return self._left > 0

    @property
    def alone(self) -> int | None:
        """The number of the event that counts as the killer, since it was alone in flight."""
        return self._suspects.alone

    def suspect(self, suspects: Suspects) -> None:
        """Begin: a dead owner had these events in flight."""
        if suspects.seqs:
            self._suspects, self._left = suspects, 2 * len(suspects.seqs)

    def step(self, batch_size: int) -> int:
        """Return how many events to claim at a time: half as many as the dead owner."""
        return min(batch_size, max(1, self._suspects.largest // 2))

    def claimed(self, events: int) -> None:
        """Note that so many were claimed."""
        if self._left > 0:
            self._left -= max(1, events)

    def counted(self) -> None:
        """Note that the death is counted: it counts once."""
        self._suspects = Suspects(largest=self._suspects.largest)
