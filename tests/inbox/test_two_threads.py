"""Two threads get the same message at the same time, with the sync inbox: it takes effect once."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from pillarbox import SyncSqlAlchemyInbox
from pillarbox.errors import DuplicateMessage
from tests.inbox.targets import stored
from tests.support.database import Database, on_sync
from tests.support.orders import Order

pytestmark = on_sync

PAIRS = 50
DELIVERIES = 20
PATIENCE = 30.0
PAYLOAD = {"total": "9.90"}
Meeting = Callable[[], object]
Worker = Callable[[Session, str, str, Meeting], str]


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    with database.sync_engine() as engine:
        yield engine


def nobody() -> None:
    """Meet nobody: a second try goes alone."""


def claims_first(session: Session, message_id: str, name: str, meet: Meeting) -> str:
    session.connection()
    meet()  # both transactions run, and neither has claimed
    inbox = SyncSqlAlchemyInbox(session)
    if not inbox.claim(message_id, event_type="T", payload=PAYLOAD):
        return "duplicate"
    session.add(Order(id=f"{message_id}-{name}"))
    session.commit()
    return "done"


def checks_then_marks(session: Session, message_id: str, name: str, meet: Meeting) -> str:
    inbox = SyncSqlAlchemyInbox(session)
    if inbox.is_processed(message_id, payload=PAYLOAD):
        return "duplicate"
    meet()  # both have asked, and neither has marked
    session.add(Order(id=f"{message_id}-{name}"))
    session.flush()
    inbox.mark_processed(message_id, "T", PAYLOAD)
    session.commit()
    return "done"


def work(worker: Worker, engine: Engine, message_id: str, name: str, meet: Meeting) -> str:
    """Do as a worker does: a duplicate is rolled back, what SQLite locks out comes again."""
    for _ in range(DELIVERIES):
        try:
            with Session(engine) as session:
                return worker(session, message_id, name, meet)
        except DuplicateMessage:
            return "rolled back"
        except OperationalError as error:
            if engine.dialect.name == "postgresql" or "locked" not in str(error):
                raise
            meet = nobody
    return "given up"


@pytest.mark.parametrize("worker", [claims_first, checks_then_marks])
async def test_one_of_two_takes_effect_each_time(
    database: Database, engine: Engine, worker: Worker
) -> None:
    ends: Counter[str] = Counter()

    with ThreadPoolExecutor(2) as threads:
        for pair in range(PAIRS):
            meet = Barrier(2, timeout=PATIENCE).wait
            both = [
                threads.submit(work, worker, engine, f"m-{pair:02}", name, meet) for name in "ab"
            ]
            ends.update(found.result() for found in both)

    expected = [f"m-{pair:02}" for pair in range(PAIRS)]
    assert await stored(database) == expected
    assert [order_id[:-2] for order_id in await database.order_ids()] == expected
    loser = "rolled back" if worker is checks_then_marks and database.is_postgres else "duplicate"
    assert ends == {"done": PAIRS, loser: PAIRS}
