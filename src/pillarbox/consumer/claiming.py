"""Who of a batch may be handled: not held, not known, not seen before, not stale, and claimed."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.applied import Author, Stand, author_of, stand_of
from pillarbox.consumer.batch import Batch, Books
from pillarbox.consumer.lane import InHand, Line
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
from pillarbox.inbox.register import COMPARED_AT_ONCE

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
    asked = [item for item in items if item.key in held or known.has_another(item)]
    handled = await handled_before(books, session, asked)
    for item in items:
        if known.has(item) or item in handled:
            tell_duplicate(books, item)
            batch.ends[item] = Repeated()
        elif known.has_another(item):
            raise_alarm(books, item)
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
            tell_duplicate(batch.books, item)
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
            batch.ends[item] = Repeated()  # the inbox has told
    if batch.books.config.on_stale != "apply":
        await _refuse_stale(batch)


async def handled_before(
    books: Books, session: AsyncSession, items: Sequence[InHand]
) -> set[InHand]:
    """Return those that the inbox has, with their content or with none; all of one tenant.

    It is asked about messages that would go to the table otherwise: there they may outlast their
    records, and would take effect again.
    """
    query = statements.hashes(books.transactions.schema)
    ids = sorted({item.message_id for item in items})
    stored: dict[str, str | None] = {}
    for start in range(0, len(ids), COMPARED_AT_ONCE):
        asked = {
            "tenant_id": items[0].tenant_id,
            "consumer": books.consumer,
            "message_ids": ids[start : start + COMPARED_AT_ONCE],
        }
        stored |= {row[0]: row[1] for row in await session.execute(query, asked)}
    return {item for item in items if _is_among(stored, item)}


def _is_among(stored: Mapping[str, str | None], item: InHand) -> bool:
    if item.envelope is None or item.message_id not in stored:
        return False
    content = content_hash(InboxMessage.of(item.envelope).payload)
    return stored[item.message_id] in (None, content)


def tell_duplicate(books: Books, item: InHand) -> None:
    """Say that a message took effect before, or waits in the table already, and is passed over."""
    log.debug("duplicate_message", extra=_named(books, item))


def raise_alarm(books: Books, item: InHand) -> None:
    """Say that somebody uses an id twice: the table has it with another content."""
    log.warning("content_mismatch", extra=_named(books, item))


def _named(books: Books, item: InHand) -> Mapping[str, str]:
    return {
        "consumer": books.consumer,
        "tenant": item.tenant_id,
        "message_id": item.message_id,
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
    authors = {named[0] for item in batch.claimed if (named := _stand_in(item)) is not None}
    if not authors:
        return
    applied = await batch.books.stands.read(batch.session, batch.claimed[0].tenant_id, authors)
    stale, waiting = _sorted_by_age(batch.claimed, applied)
    batch.ends.update(dict.fromkeys(waiting, Untouched()))
    for item in stale:
        if batch.books.config.on_stale == "drop":
            batch.ends[item] = Dropped(_OLDER)
        else:
            await set_aside(batch, item, STALE, _OLDER)


def _sorted_by_age(
    items: Sequence[InHand], applied: Mapping[Author, Stand]
) -> tuple[list[InHand], list[InHand]]:
    """Return events that are stale, and those that wait for others of their batch.

    One that is only below another of the batch waits for what becomes of that one, and its line with
    it: the other may fail, and this one is not old then.
    """
    stale: list[InHand] = []
    waiting: list[InHand] = []
    lines: set[Line] = set()
    coming: dict[Author, Stand] = {}
    for item in items:
        author, stand = _stand_in(item) or (None, None)
        if item.line in lines:
            waiting.append(item)
        elif author is None or stand is None:
            continue
        elif author in applied and stand <= applied[author]:
            stale.append(item)
        elif author in coming and stand <= coming[author]:
            waiting.append(item)
            lines.add(item.line)
        else:
            coming[author] = stand
    return stale, waiting


def _stand_in(item: InHand) -> tuple[Author, Stand] | None:
    """Return whose event it is and how far that one is with it; None when it does not say."""
    if item.envelope is None:
        return None
    author, stand = author_of(item.envelope), stand_of(item.envelope)
    return None if author is None or stand is None else (author, stand)
