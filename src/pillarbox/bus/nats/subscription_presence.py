"""Who else listens for a consumer, so that partitions are shared out; the server's pins decide.

A member that hears nobody takes everything: that is right when it is alone, and harmless when beats
are lost or forbidden, since a durable still has one pin.
"""

import hashlib
from collections.abc import Collection, Sequence
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
    _asked: tuple[frozenset[str], tuple[str, ...]] | None = None
    _share: frozenset[str] = frozenset()

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

    def share(self, subjects: Sequence[str]) -> Collection[str]:
        """Return the partitions that fall to us."""
        asked = (frozenset((self.me, *self._heard)), tuple(subjects))
        if asked != self._asked:
            self._asked, owners = asked, shared_out(*asked)
            self._share = frozenset(s for s, member in owners.items() if member == self.me)
        return self._share


def shared_out(members: Collection[str], subjects: Sequence[str]) -> dict[str, str]:
    """Return the owner of each partition; whoever knows the same members comes to the same.

    No member has two more than another, so that none is idle while there are enough of them. The
    pairs that weigh most come first: a member that comes or goes moves hardly more than it must.
    """
    fewest, one_more = divmod(len(subjects), len(members))
    owners: dict[str, str] = {}
    counts = dict.fromkeys(members, 0)
    pairs = ((member, subject) for member in members for subject in subjects)
    for member, subject in sorted(pairs, key=_weight):
        has = counts[member]
        if subject in owners or has > fewest or (has == fewest and not one_more):
            continue
        one_more -= has == fewest
        owners[subject] = member
        counts[member] += 1
    return owners


def _weight(pair: tuple[str, str]) -> bytes:
    return hashlib.sha256("\0".join(pair).encode()).digest()
