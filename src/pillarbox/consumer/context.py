"""What a handler is given beside its event: the message, its transaction, and what follows it."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.payload import encode_json
from pillarbox.outbox.outbox import SqlAlchemyOutbox, SyncSqlAlchemyOutbox

Tell = Callable[[], None]


class Task(NamedTuple):
    """A function of a consumer that is run after the commit, known by its name in the table."""

    name: str
    function: Callable[..., Awaitable[None]]

    def __call__(self, **arguments: Any) -> Awaitable[None]:
        """Run the task, with arguments as they come out of the table."""
        return self.function(**arguments)


class StoredTask(NamedTuple):
    """A task to be stored in the handler's transaction: its name and its arguments as JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handling:
    """What both contexts have: one message, handled by one consumer in one transaction."""

    consumer: str
    envelope: MessageEnvelope
    attempt: int = 1
    tasks: list[StoredTask] = field(default_factory=list)
    told: list[Tell] = field(default_factory=list)
    """What is called once the transaction is committed, for what is merely counted."""

    @property
    def tenant_id(self) -> str:
        """The tenant for whom the message is handled."""
        return self.envelope.tenant_id

    def effect_key(self, name: str) -> str:
        """Return a key for a remote API that is the same each time this message is handled.

        It is made of the tenant, the consumer, the message's id and the name of the effect.
        """
        parts = (self.tenant_id, self.consumer, self.envelope.event_id, name)
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()

    def after_commit(self, task: Task | str, **arguments: Any) -> None:
        """Store a task that is run at least once after the commit, and never without it."""
        name = task if isinstance(task, str) else task.name
        self.tasks.append(StoredTask(name, encode_json(arguments)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(_Handling):
    """One message in the hands of a handler.

        async def charge(event: OrderCreated, ctx: Context) -> None:
            ctx.session.add(Payment(order_id=event.order_id, amount=event.total))
            await ctx.outbox.add(PaymentProcessed(event.order_id), key=event.order_id)

    `session` is in the transaction that also holds the inbox's row: leave its commit to the
    consumer. `attempt` counts from 1.
    """

    session: AsyncSession

    @property
    def outbox(self) -> SqlAlchemyOutbox:
        """The outbox in this transaction, for the tenant of the message."""
        return SqlAlchemyOutbox(self.session, self.tenant_id)

    def sync(self, session: Session) -> "SyncContext":
        """Return the same for a handler that is no coroutine."""
        return SyncContext(
            consumer=self.consumer,
            envelope=self.envelope,
            attempt=self.attempt,
            tasks=self.tasks,
            told=self.told,
            session=session,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncContext(_Handling):
    """The same for a handler that is no coroutine: it has a sync session and a sync outbox."""

    session: Session

    @property
    def outbox(self) -> SyncSqlAlchemyOutbox:
        """The outbox in this transaction, for the tenant of the message."""
        return SyncSqlAlchemyOutbox(self.session, self.tenant_id)
