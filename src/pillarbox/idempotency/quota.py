"""How many keys a caller may still have, without counting them on every request."""

from collections import OrderedDict
from typing import Final

from pillarbox.idempotency.scope import Scope

_SHARE: Final = 10
_CALLERS: Final = 10_000


class Allowances:
    """Say when a caller's keys must be counted.

    Counting reads every live key of a caller. So after a count this process lets a tenth of the
    room pass that it found, and counts again. Ten processes together cannot exceed the quota so;
    P of them exceed it by P/10 at the very most. Callers that are not known are counted at once,
    and of too many the one that was silent longest is forgotten.
    """

    def __init__(self, quota: int) -> None:
        self._quota = quota
        self._left: OrderedDict[tuple[str, str], int] = OrderedDict()

    def must_count(self, scope: Scope) -> bool:
        """Say whether the next claim must count."""
        return self._left.get((scope.tenant_id, scope.principal), 0) < 1

    def counted(self, scope: Scope, keys: int) -> None:
        """Note how many keys a caller has."""
        self._left[scope.tenant_id, scope.principal] = (self._quota - keys) // _SHARE
        if len(self._left) > _CALLERS:
            self._left.popitem(last=False)

    def spend(self, scope: Scope) -> None:
        """Note that a caller has got one key more."""
        caller = (scope.tenant_id, scope.principal)
        if caller in self._left:
            self._left[caller] -= 1
            self._left.move_to_end(caller)
