"""Who of a batch may be handled: not held, not known, not seen before, not stale, and claimed."""

import logging
from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.applied import author_of, stand_of
from pillarbox.consumer.batch import Batch, Books
from pillarbox.consumer.lane import InHand
from pillarbox.consumer.parked import PARKED, Standing
from pillarbox.consumer.verdict import (
    CONTENT_MISMATCH,
    STALE,
    Dropped,
    KeyHeld,
    Repeated,
    SetAside,
    Untouched,
)
from pillarbox.event.envelope import JSON_CONTENT, MessageEnvelope
from pillarbox.event.incoming import Unreadable
from pillarbox.inbox import statements
from pillarbox.inbox.identity import content_hash
from pillarbox.inbox.inbox import SqlAlchemyInbox
from pillarbox.inbox.message import InboxMessage

log = logging.getLogger("pillarbox.consumer")

_OTHER_CONTENT: Final = (
    "another message with this id was handled before, and its content was not this"
)
OTHER_WAITS: Final = (
    "another message with this id is among the parked ones, and its content is not this"
)
_OLDER: Final = "its version and number are not above those that were applied of its aggregate"


async def sort_out(batch: Batch, items: Sequence[InHand]) -> list[InHand]:
    """Decide about messages that are in the table, or belong behind others there; return the rest."""
    books, session = batch.books, batch.session
    held, known = await books.parked.look_up(session, items[0].tenant_id, items)
    handled = await handled_before(books, session, [i for i in items if known.has_another(i)])
    for item in items:
        if known.has(item) or item in handled:
            batch.ends[item] = Repeated()
        elif known.has_another(item):
            log.warning(
                "content_mismatch", extra={"tenant": item.tenant_id, "message_id": item.message_id}
            )
            await set_aside(batch, item, CONTENT_MISMATCH, OTHER_WAITS)
            known.add(item)
        elif item.key in held:
            batch.ends[item] = KeyHeld()
    return [item for item in items if item not in batch.ends]


async def claim(batch: Batch, items: Sequence[InHand], mismatched: Collection[str] = ()) -> None:
    """Claim messages in the inbox; decide about those that are not to be handled.

    Raise `ContentMismatch` for a message that is not in `mismatched` and should be.
    """
    wanted: dict[str, InHand] = {}
    used = [item for item in items if item.message_id in mismatched]
    handled = await handled_before(batch.books, batch.session, used)
    for item in items:
        if isinstance(item.content, Unreadable):
            await set_aside(batch, item, item.content.code, item.content.reason)
        elif item in handled:
            batch.ends[item] = Repeated()
        elif item.message_id in mismatched:
            await set_aside(batch, item, CONTENT_MISMATCH, _OTHER_CONTENT)
        elif item.message_id in wanted:
            batch.ends[item] = Untouched()  # a second copy is looked at after the first
        else:
            wanted[item.message_id] = item
    new = await _insert(batch.books, batch.session, list(wanted.values()))
    for item in wanted.values():
        if item in new:
            batch.claimed.append(item)
        else:
            batch.ends[item] = Repeated()
    if batch.books.config.on_stale != "apply":
        await _refuse_stale(batch)


async def handled_before(
    books: Books, session: AsyncSession, items: Sequence[InHand]
) -> set[InHand]:
    """Return those whose id the inbox has with their very content; all of one tenant.

    It is asked about messages that would be parked otherwise, because their id was used twice.
    """
    if not items:
        return set()
    asked = {
        "tenant_id": items[0].tenant_id,
        "consumer": books.consumer,
        "message_ids": sorted({item.message_id for item in items}),
    }
    rows = await session.execute(statements.hashes(books.transactions.schema), asked)
    stored: dict[str, str | None] = {row[0]: row[1] for row in rows}
    return {
        item
        for item in items
        if item.envelope is not None
        and item.message_id in stored
        and stored[item.message_id] == content_hash(item.envelope.body())
    }


async def set_aside(batch: Batch, item: InHand, reason: str, why: str) -> None:
    """Park a message that is not tried; its key goes on."""
    books = batch.books
    standing = Standing(PARKED, reason, holds_key=False, attempts=item.attempts, error_message=why)
    await books.tenants.note(batch.session, item.tenant_id)
    await books.parked.add(batch.session, [(item, standing)], books.clock.now())
    batch.ends[item] = SetAside(reason)


async def _insert(books: Books, session: AsyncSession, items: Sequence[InHand]) -> set[InHand]:
    """Claim messages with one statement, or two: only JSON can be kept as a payload."""
    groups: dict[bool, list[tuple[InHand, MessageEnvelope]]] = {}
    for item in items:
        if item.envelope is not None:
            keep = books.config.keep_payload and item.envelope.content_type == JSON_CONTENT
            groups.setdefault(keep, []).append((item, item.envelope))
    new: set[InHand] = set()
    for keep, group in groups.items():
        register = SqlAlchemyInbox(
            session, group[0][0].tenant_id, consumer=books.consumer, keep_payload=keep
        )
        found = await register.claim_many([InboxMessage.of(envelope) for _, envelope in group])
        new.update(item for item, envelope in group if envelope.event_id in found)
    return new


async def _refuse_stale(batch: Batch) -> None:
    """Decide about events that are not above what was applied of their aggregate."""
    known = [
        (item, author, stand)
        for item in batch.claimed
        if item.envelope is not None
        and (author := author_of(item.envelope)) is not None
        and (stand := stand_of(item.envelope)) is not None
    ]
    if not known:
        return
    authors = {author for _, author, _ in known}
    applied = await batch.books.stands.read(batch.session, batch.claimed[0].tenant_id, authors)
    for item, author, stand in known:
        if author not in applied or stand > applied[author]:
            applied[author] = stand
        elif batch.books.config.on_stale == "drop":
            batch.ends[item] = Dropped(_OLDER)
        else:
            await set_aside(batch, item, STALE, _OLDER)
