"""A claim: one statement for a whole batch, in its only transaction; and what it keeps of a content."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from pillarbox.consumer.context import Context
from pillarbox.event.incoming import Incoming
from pillarbox.inbox.identity import content_hash
from pillarbox.inbox.inbox import SqlAlchemyInbox
from tests.consumer.rig import CONSUMER, QUICK, TOPIC, Effect, Shop
from tests.support.database import on

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg", "sqlite+aiosqlite")

BATCH = 50


@dataclass
class Transactions:
    """The statements of each transaction that was committed, and those that are under way."""

    committed: list[list[str]] = field(default_factory=list)
    running: dict[Connection, list[str]] = field(default_factory=dict)

    def of(self, table: str) -> list[int]:
        """Return how many inserts into a table each committed transaction had that had any."""
        found = (
            sum(statement.startswith(f"INSERT INTO {table} ") for statement in transaction)
            for transaction in self.committed
        )
        return [number for number in found if number]

    @contextmanager
    def seen(self, engine: Engine) -> Iterator[None]:
        hooks: dict[str, Callable[..., Any]] = {
            "begin": self._begin,
            "before_cursor_execute": self._execute,
            "commit": self._commit,
        }
        for name, hook in hooks.items():
            event.listen(engine, name, hook)
        try:
            yield
        finally:
            for name, hook in hooks.items():
                event.remove(engine, name, hook)

    def _begin(self, connection: Connection) -> None:
        self.running[connection] = []

    def _execute(self, connection: Connection, cursor: object, text: str, *rest: object) -> None:
        del cursor, rest
        self.running.setdefault(connection, []).append(text)

    def _commit(self, connection: Connection) -> None:
        self.committed.append(self.running.pop(connection))


async def test_a_batch_of_fifty_is_claimed_with_one_statement_and_committed_once(
    shop: Shop,
) -> None:
    for n in range(BATCH):
        shop.send(f"m{n}", key=f"k{n % 7}", n=n)
    transactions = Transactions()

    with transactions.seen(shop.database.engine.sync_engine):
        await shop.loop(config=replace(QUICK, lanes=1, batch_size=BATCH)).drain()

    assert transactions.of("inbox") == [1]
    assert len(transactions.of("consumer_effect")) == 1
    assert await shop.count("inbox") == len(await shop.effects()) == BATCH


@pytest.mark.parametrize(("keep", "kept"), [(True, {"n": 7}), (False, None)])
async def test_a_claim_keeps_the_content_by_option_and_its_hash_in_any_case(
    shop: Shop, keep: bool, kept: dict[str, Any] | None
) -> None:
    shop.send("m1", n=7)

    await shop.loop(config=replace(QUICK, keep_payload=keep)).drain()

    async with shop.database.sessions() as session:
        record = await SqlAlchemyInbox(session, consumer=CONSUMER).get_record("m1")
    assert record is not None
    assert record.payload == kept
    assert record.payload_hash == content_hash(b'{"n":7}')
    assert await shop.count("inbox", "payload IS NULL") == (0 if keep else 1)


async def test_a_content_that_is_no_json_takes_effect_and_is_not_kept(shop: Shop) -> None:
    async def handler(image: bytes, ctx: Context) -> None:
        ctx.session.add(Effect(message_id=ctx.envelope.event_id, key="", n=len(image)))

    told = {"event_id": "m1", "event_type": "OrderCreated"}
    shop.bus.put(Incoming(TOPIC, "k", told, b"\xff\xd8", "image/jpeg"))
    await shop.loop(handler, replace(QUICK, keep_payload=True)).drain()

    assert await shop.effects() == ["m1"]
    assert await shop.count("inbox", "payload IS NULL AND payload_hash IS NOT NULL") == 1
