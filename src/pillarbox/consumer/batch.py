"""A batch in its transaction: what became of its messages so far, and what is written at its end."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import delete, insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from pillarbox.clock import Clock
from pillarbox.consumer.applied import Author, Stand, Stands, author_of, stand_of
from pillarbox.consumer.attempts import Attempts
from pillarbox.consumer.config import ConsumerConfig
from pillarbox.consumer.context import StoredTask, Tell
from pillarbox.consumer.fate import Fate, fate_of, is_undone
from pillarbox.consumer.lane import InHand
from pillarbox.consumer.parked import ParkedMessages
from pillarbox.consumer.tenants import Tenants
from pillarbox.consumer.transactions import Transactions
from pillarbox.consumer.verdict import Applied, Dropped, End, Repeated, SetAside
from pillarbox.errors import UnitOfWorkError
from pillarbox.event.ids import IdMaker
from pillarbox.schema.tables import inbox, inbox_task
from pillarbox.uow.standing import ANYTHING, is_known_to_stand

Ends = dict[InHand, End]

CLAIMED: Final = (Applied, Dropped)
"""What leaves a claim in the inbox."""
FINISHED: Final = (*CLAIMED, Repeated, SetAside)
"""What lets the next message of its line go on."""

_UNDONE: Final = (
    "SQLite has rolled the whole transaction back, as it may when its disk is full, and the handler "
    "passed over the error; let it end the handler, which is tried again"
)


@dataclass(frozen=True, slots=True)
class Books:
    """What a consumer writes beside the effects of its handlers."""

    consumer: str
    transactions: Transactions
    parked: ParkedMessages
    attempts: Attempts
    stands: Stands
    tenants: Tenants
    config: ConsumerConfig
    clock: Clock
    new_id: IdMaker
    tasks_stored: asyncio.Event
    """Set when a handler has left a task."""


@dataclass(slots=True)
class Batch:
    """Messages of one tenant in one transaction."""

    books: Books
    session: AsyncSession
    connection: AsyncConnection
    fate: Fate
    ends: Ends = field(default_factory=dict)
    claimed: list[InHand] = field(default_factory=list)
    tasks: list[tuple[InHand, StoredTask]] = field(default_factory=list)
    told: list[Tell] = field(default_factory=list)

    @classmethod
    async def of(cls, books: Books, session: AsyncSession) -> "Batch":
        """Begin with a batch in a running transaction."""
        connection = await session.connection()
        return cls(books, session, connection, fate_of(connection))

    @property
    def to_handle(self) -> list[InHand]:
        """The messages that are claimed and not yet decided about."""
        return [item for item in self.claimed if item not in self.ends]

    def refuse_undone(self) -> None:
        """Raise if SQLite has undone all by itself, over a statement whose error somebody has caught."""
        if is_undone(self.connection):
            raise UnitOfWorkError(_UNDONE)

    async def refuse_aborted(self) -> None:
        """Raise if a statement failed whose error somebody has caught outside of a savepoint.

        PostgreSQL answers the COMMIT of an aborted transaction with a rollback and no error: all
        messages of the batch would be acknowledged without an effect.
        """
        if not await self.connection.run_sync(is_known_to_stand):
            await self.connection.execute(ANYTHING)

    async def close(self) -> None:
        """Write what belongs to the outcome: claims given back, tasks, stands, attempts."""
        await self._unclaim([i for i in self.claimed if not isinstance(self.ends[i], CLAIMED)])
        await self._store_tasks()
        if self.books.config.on_stale != "apply":
            await self._keep_stands()
        finished = [item for item, end in self.ends.items() if isinstance(end, FINISHED)]
        await self.books.attempts.forget(self.session, finished)

    async def _unclaim(self, items: list[InHand]) -> None:
        if not items:
            return
        table = self.books.transactions.table(inbox)
        await self.session.execute(
            delete(table).where(
                table.c.tenant_id == items[0].tenant_id,
                table.c.consumer == self.books.consumer,
                table.c.message_id.in_([item.message_id for item in items]),
            )
        )

    async def _store_tasks(self) -> None:
        if self.tasks:
            tenant_id = self.tasks[0][0].tenant_id
            tasks = [(item.message_id, task) for item, task in self.tasks]
            await store_tasks(self.books, self.session, tenant_id, tasks)

    def tell(self) -> None:
        """Say, once the transaction is committed, what came of it."""
        if self.tasks:
            self.books.tasks_stored.set()
        for tell in self.told:
            tell()

    async def _keep_stands(self) -> None:
        stands: dict[Author, Stand] = {}
        for item in self.claimed:
            if item.envelope is None or not isinstance(self.ends[item], Applied):
                continue
            author, stand = author_of(item.envelope), stand_of(item.envelope)
            if author is not None and stand is not None:
                stands[author] = stand
        if stands:
            await self.books.stands.write(self.session, self.claimed[0].tenant_id, stands)


async def store_tasks(
    books: Books, session: AsyncSession, tenant_id: str, tasks: Sequence[tuple[str, StoredTask]]
) -> None:
    """Store tasks of messages of one tenant, in the transaction that they belong to."""
    now = books.clock.now()
    rows = [
        {
            "tenant_id": tenant_id,
            "task_id": books.new_id(),
            "consumer": books.consumer,
            "message_id": message_id,
            "name": task.name,
            "arguments": json.loads(task.arguments),
            "due_at": now,
            "created_at": now,
        }
        for message_id, task in tasks
    ]
    await books.tenants.note(session, tenant_id)
    await session.execute(insert(books.transactions.table(inbox_task)), rows)
