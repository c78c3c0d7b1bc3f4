"""Who else listens for a consumer, so that partitions are shared out; the server's pins decide.

A member that hears nobody takes everything: that is right when it is alone, and harmless when beats
are lost or forbidden, since a durable still has one pin.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from pillarbox.bus.wire_text import wire_text

BEAT: Final = 1.0
_HERE: Final = b"+"
_GONE: Final = b"-"
_MISSED_AFTER: Final = 3.5  # beats


@dataclass(slots=True)
class Presence:
    """Keep the members that were heard lately, and say which partitions are ours.

    `circle` is what its members have in common: a member with other topics would be given partitions
    that it does not listen to.
    """

    circle: str
    me: str = field(default_factory=lambda: uuid4().hex)
    _heard: dict[str, float] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        """Where members tell each other that they are there."""
        digest = hashlib.sha256(self.circle.encode()).hexdigest()[:16]
        return f"_PILLARBOX.members.{digest}"

    def beat(self) -> bytes:
        """Return what tells the others that we are there."""
        return _HERE + self.me.encode()

    def goodbye(self) -> bytes:
        """Return what tells the others that we leave."""
        return _GONE + self.me.encode()

    def heard(self, said: bytes, now: float) -> bool:
        """Note what a member says; tell whether there is one more or one fewer."""
        sign, member = said[:1], wire_text(said[1:])
        if member == self.me:
            return False
        known = member in self._heard
        if sign == _GONE:
            self._heard.pop(member, None)
            return known
        self._heard[member] = now
        return not known

    def forget_silent(self, now: float) -> None:
        """Forget members that have missed their beats."""
        limit = now - BEAT * _MISSED_AFTER
        self._heard = {member: at for member, at in self._heard.items() if at >= limit}

    def is_mine(self, subject: str) -> bool:
        """Tell whether a partition falls to us; a member that comes or goes moves few others."""
        return self.me == max((self.me, *self._heard), key=lambda member: _weight(member, subject))


def _weight(member: str, subject: str) -> bytes:
    return hashlib.sha256(f"{member}\0{subject}".encode()).digest()
