"""Move messages out of hand into the table, with those behind them, in one transaction."""

from collections.abc import Sequence
from typing import Final

from pillarbox.consumer.batch import Books
from pillarbox.consumer.lane import InHand
from pillarbox.consumer.parked import WAITING, Standing
from pillarbox.consumer.verdict import BEHIND

_BEHIND: Final = Standing(WAITING, BEHIND, holds_key=True)


async def move(books: Books, items: Sequence[InHand], first: Standing | None) -> bool:
    """Put messages of one line into the table, in their order; what is there already stays.

    `first` is how the first of them stands there. Without it all go behind others of their key: if
    those have gone meanwhile, nothing is moved, and False is returned.
    """
    tenant_id, key = items[0].tenant_id, items[0].key
    now = books.clock.now()
    async with books.transactions.begin(tenant_id) as session:
        held = False
        if key is not None:
            await books.parked.lock(session, tenant_id, key)
            held = bool(await books.parked.held(session, tenant_id, {key}))
        if first is None and not held:
            return False
        known = await books.parked.known(session, tenant_id, {i.message_id for i in items})
        head = _BEHIND if first is None else first.behind() if held else first
        rows: dict[str, tuple[InHand, Standing]] = {}
        for item in items:
            if item.message_id not in known:
                standing = head if item is items[0] else _BEHIND
                rows.setdefault(item.message_id, (item, standing))
        await books.tenants.note(session, tenant_id)
        await books.parked.add(session, list(rows.values()), now)
        await books.attempts.forget(session, items)
        await books.parked.go_on(session, tenant_id, key, now)
    return True
