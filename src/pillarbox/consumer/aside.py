"""Move messages out of hand into the table, with those behind them, in one transaction."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.batch import Books
from pillarbox.consumer.claiming import (
    OTHER_WAITS,
    handled_before,
    raise_alarm,
    tell_duplicate,
)
from pillarbox.consumer.known import Known
from pillarbox.consumer.lane import InHand
from pillarbox.consumer.parked import PARKED, WAITING, Standing
from pillarbox.consumer.verdict import BEHIND, CONTENT_MISMATCH

_BEHIND: Final = Standing(WAITING, BEHIND, holds_key=True)
_OTHER: Final = Standing(PARKED, CONTENT_MISMATCH, holds_key=False, error_message=OTHER_WAITS)


async def move(books: Books, items: Sequence[InHand], first: Standing | None) -> bool:
    """Put messages of one line into the table, in their order; what is there already stays.

    What took effect before is left out. What comes under the id of another one there is parked for a
    person.

    `first` is how the first of them stands there. Without it all go behind others of their key: if
    those have gone meanwhile, nothing is moved, and False is returned.
    """
    tenant_id, key = items[0].tenant_id, items[0].key
    now = books.clock.now()
    async with books.transactions.begin(tenant_id) as session:
        if key is not None:
            await books.parked.lock(session, tenant_id, key)
        held, known = await books.parked.look_up(session, tenant_id, items)
        is_held = key in held
        if first is None and not is_held:
            return False
        head = _BEHIND if first is None else first.behind() if is_held else first
        rows = await _rows(books, session, known, items, head)
        await books.tenants.note(session, tenant_id)
        await books.parked.add(session, rows, now)
        await books.attempts.forget(session, items)
        await books.parked.go_on(session, tenant_id, key, now)
    return True


async def _rows(
    books: Books, session: AsyncSession, known: Known, items: Sequence[InHand], head: Standing
) -> list[tuple[InHand, Standing]]:
    """Say how each message stands that is new to the table and has had no effect."""
    rows: list[tuple[InHand, Standing]] = []
    for item in items:
        if known.has(item):
            tell_duplicate(books, item)
            continue
        standing = head if item is items[0] else _BEHIND
        rows.append((item, _OTHER if known.has_another(item) else standing))
        known.add(item)
    handled = await handled_before(books, session, [item for item, _ in rows])
    for item, standing in rows:
        if item in handled:
            tell_duplicate(books, item)
        elif standing is _OTHER:
            raise_alarm(books, item)
    return [row for row in rows if row[0] not in handled]
