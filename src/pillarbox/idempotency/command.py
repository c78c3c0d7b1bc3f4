"""One command in the strong mode: its claim, its effects and its answer in one transaction."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import InitVar, dataclass, field

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, PendingRollbackError
from sqlalchemy.util import greenlet_spawn

from pillarbox.idempotency.answer import Answer
from pillarbox.idempotency.decision import Busy, Claimed, Decision, Execute, Sighting, decide
from pillarbox.idempotency.errors import (
    CommandNotCommitted,
    CommandUnknown,
    IdempotencyError,
)
from pillarbox.idempotency.scope import Scope
from pillarbox.idempotency.statement import roll_back
from pillarbox.idempotency.store import Bid, CommandStore, Ending
from pillarbox.outbox.postponed import PostponedEvent
from pillarbox.outbox.write import refuse_autocommit
from pillarbox.tenancy import Tenancy, enter_tenant
from pillarbox.uow.committing import hanging_up
from pillarbox.uow.joining import running_transaction
from pillarbox.uow.outcome import is_unknown
from pillarbox.uow.owner import CommandOwner, owner_of

log = logging.getLogger(__name__)


class ClaimLost(Exception):
    """The handler rolled back, and meanwhile somebody else has claimed the key."""


class _NotRecorded(Exception):
    """The claimed row is not there any more."""


@dataclass(slots=True, eq=False)
class Command:
    """A request with a key, from before its dependencies run to its commit.

    Units of work join the transaction of its owner meanwhile. `claim` comes first of all that it
    writes; `commit` records the answer and makes row, effects, events and answer durable together.
    """

    store: CommandStore
    tenancy: Tenancy
    bind: InitVar[Engine | Connection]
    key: str
    fingerprint: str
    owner: CommandOwner = field(init=False)
    bid: Bid | None = None
    decision: Decision | None = None
    _claimed: Claimed = field(default_factory=Claimed)
    _refused: bool = False

    def __post_init__(self, bind: Engine | Connection) -> None:
        self.owner = owner_of(bind, self.restart)

    @property
    def executes(self) -> bool:
        """Whether the key is ours, so that an answer is to be recorded."""
        return isinstance(self.decision, Execute)

    async def claim(self, tenant_id: str, principal: str, operation: str) -> Decision:
        """Insert the key's row, and say what is to be done."""
        bid = Bid(Scope.of(tenant_id, principal, operation, self.key), self.fingerprint)
        if self.store.is_busy(bid):
            return self._decide(Busy())  # a transaction of ours would wait for the other one
        running = running_transaction()
        # Units of work of dependencies may have been undone, or have left an event to be written.
        connection = self.owner.connection if running is None else running.connection
        try:
            decision = await greenlet_spawn(lambda: self._claim(connection(), bid))
        except DBAPIError as error:
            if not self.store.is_held_off(error):
                raise
            decision = self._decide(Busy())
        self._refused = not self.executes
        if running is not None:
            running.owner_wrote()
        return decision

    def restart(self, connection: Connection) -> None:
        """Claim the key again after a rollback by the handler, which gave it up.

        What was refused stays so, though the key be free by now: no handler has run.
        """
        if self.bid is None or self._refused:
            return
        if not isinstance(self._claim(connection, self.bid), Execute):
            raise ClaimLost

    def _claim(self, connection: Connection, bid: Bid) -> Decision:
        refuse_autocommit(connection)
        self.bid = bid
        if self.tenancy.required:
            enter_tenant(connection, bid.scope.tenant_id)
            self.owner.tenant_id = bid.scope.tenant_id
        seen = self.store.claim(connection, bid)
        if isinstance(seen, Claimed):
            self._claimed = seen
        return self._decide(seen)

    def close(self) -> None:
        """Roll back what is not committed, and give the connection back."""
        try:
            if self.decision is not None and not self.executes:
                roll_back(self.owner.driver)  # it was answered by what stood there
        finally:
            self.owner.close()

    def ended(self) -> None:
        """Tell the store that the transaction is over."""
        if self.bid is not None:
            self.store.ended(self.bid)

    def _decide(self, seen: Sighting) -> Decision:
        self.decision = decide(seen, self.fingerprint, self.store.settings)
        return self.decision

    async def commit(
        self, answer: Answer | None, event: PostponedEvent | None
    ) -> IdempotencyError | None:
        """Record an answer and commit; say what went wrong, for then it must not be sent.

        The event is the one that the command's unit of work has left to its last statement.
        Without an answer only what the dependencies did is committed. Cancelled meanwhile, the
        outcome is unknown, and the connection is closed.
        """
        driver, work = self.owner.driver, greenlet_spawn(self._commit, answer, event)
        try:
            await (work if driver is None else hanging_up(driver, work))
        except _NotRecorded:
            return CommandNotCommitted()
        except PendingRollbackError:  # the connection was lost before, and nobody has minded
            log.exception("command_not_committed")
            return CommandNotCommitted()
        except (DBAPIError, OSError) as error:
            log.exception("command_not_committed")
            if is_unknown(error):
                return CommandUnknown(self.store.settings.retry_after_seconds)
            return CommandNotCommitted()
        return None

    def _commit(self, answer: Answer | None, event: PostponedEvent | None) -> None:
        connection = self.owner.connection()
        if answer is None:
            if event is not None:
                event.write(connection)
            self.owner.commit()
            return
        if self.bid is None:
            raise _NotRecorded
        tenant_id = self.bid.scope.tenant_id
        notes = self.tenancy.required and not self.store.tenants.is_noted(connection, tenant_id)
        may_commit = self.owner.restarts and not notes  # nothing but the commit is to follow
        ending = Ending(self._claimed.place, event, may_commit=may_commit)
        if not self.store.record(connection, self.bid, answer, ending):
            raise _NotRecorded
        if notes:
            self.store.tenants.note(connection, tenant_id)
        self.owner.commit()
        if notes:
            self.store.tenants.committed(tenant_id)


@asynccontextmanager
async def opened(
    store: CommandStore, bind: Engine | Connection, tenancy: Tenancy, key: str, fingerprint: str
) -> AsyncIterator[Command]:
    """Open the transaction of a command; what is not committed by the end is rolled back."""
    command = Command(store, tenancy, bind, key, fingerprint)
    try:
        yield command
    finally:
        if command.owner.is_open:
            # Whoever is cancelled a second time does not wait for it; the key is free at its end.
            await asyncio.shield(asyncio.ensure_future(_closed(command)))
        else:
            command.ended()


async def _closed(command: Command) -> None:
    try:
        await greenlet_spawn(command.close)
    finally:
        command.ended()
