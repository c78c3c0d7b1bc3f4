"""The routes round the ORM filter, each as a function of a session that works for acme."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from sqlalchemy import delete, exists, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, aliased, joinedload, make_transient_to_detached, selectinload
from sqlalchemy.orm.exc import StaleDataError

from pillarbox import InboxRecord, OutboxRecord
from pillarbox.schema.tables import (
    idempotency,
    inbox,
    inbox_applied,
    inbox_attempt,
    inbox_parked,
    inbox_task,
)
from tests.tenancy.shop import ACME, GLOBEX, Base, Customer, Line, Order

ORDERS = Base.metadata.tables[Order.__tablename__]


class Refusal(NamedTuple):
    """How a write ends: with this error, or, without one, by finding no row."""

    error: type[Exception]
    words: str


BY_THE_WALL = Refusal(DBAPIError, "row-level security")
BY_THE_SESSION = Refusal(StaleDataError, "expected to update 1 row")

READS: dict[str, Callable[[Session], Iterable[Any]]] = {}
# Reads that ask for a foreign row alone, so that their answer is empty.
AIMED: set[str] = set()
WRITES: dict[str, tuple[Callable[[Session], Any], Refusal | None]] = {}


def reads(route: Callable[[Session], Iterable[Any]]) -> None:
    READS[route.__name__] = route


def aims(route: Callable[[Session], Iterable[Any]]) -> None:
    AIMED.add(route.__name__)
    reads(route)


def writes(refusal: Refusal | None) -> Callable[[Callable[[Session], Any]], None]:
    def register(route: Callable[[Session], Any]) -> None:
        WRITES[route.__name__] = (route, refusal)

    return register


@reads
def orm_select(session: Session) -> Iterable[Any]:
    return (found.tenant_id for found in session.scalars(select(Order)))


@reads
def orm_columns(session: Session) -> Iterable[Any]:
    return session.scalars(select(Order.tenant_id))


@reads
def query_api(session: Session) -> Iterable[Any]:
    return (found.tenant_id for found in session.query(Order).all())


@reads
def alias_and_join(session: Session) -> Iterable[Any]:
    other = aliased(Order)
    return session.scalars(select(other.tenant_id).join(Line, Line.order_id == other.id))


@reads
def core_select(session: Session) -> Iterable[Any]:
    return session.scalars(select(ORDERS.c.tenant_id))


@reads
def words(session: Session) -> Iterable[Any]:
    return session.scalars(text("SELECT tenant_id FROM shop_orders"))


@aims
def words_that_name_the_tenant(session: Session) -> Iterable[Any]:
    return session.scalars(text("SELECT tenant_id FROM shop_orders WHERE tenant_id = 'globex'"))


@reads
def entities_from_words(session: Session) -> Iterable[Any]:
    statement = select(Order).from_statement(text("SELECT * FROM shop_orders"))
    return (found.tenant_id for found in session.scalars(statement))


@reads
def bare_connection(session: Session) -> Iterable[Any]:
    return session.connection().scalars(select(ORDERS.c.tenant_id))


@reads
def locking_read(session: Session) -> Iterable[Any]:
    return session.scalars(text("SELECT tenant_id FROM shop_orders FOR UPDATE"))


@reads
def cursor(session: Session) -> Iterable[Any]:
    session.execute(text("DECLARE peek CURSOR FOR SELECT tenant_id FROM shop_orders"))
    return session.scalars(text("FETCH ALL FROM peek"))


@aims
def primary_key(session: Session) -> Iterable[Any]:
    return [GLOBEX for found in (session.get(Order, 2),) if found]


@aims
def primary_key_past_the_identity_map(session: Session) -> Iterable[Any]:
    return [GLOBEX for found in (session.get(Order, 2, populate_existing=True),) if found]


@aims
def key_that_names_the_tenant(session: Session) -> Iterable[Any]:
    return [GLOBEX for found in (session.get(Customer, (GLOBEX, 1)),) if found]


@aims
def lazy_relationship(session: Session) -> Iterable[Any]:
    line = session.get_one(Line, 3)
    return [line.order.tenant_id] if line.order else []


@reads
def lazy_collection(session: Session) -> Iterable[Any]:
    return [line.tenant_id for line in session.get_one(Order, 1).lines]


@reads
def joined_relationship(session: Session) -> Iterable[Any]:
    lines = session.scalars(select(Line).options(joinedload(Line.order)))
    return [line.order.tenant_id for line in lines if line.order]


@reads
def selected_collection(session: Session) -> Iterable[Any]:
    orders = session.scalars(select(Order).options(selectinload(Order.lines)))
    return [line.tenant_id for order in orders for line in order.lines]


@reads
def count(session: Session) -> Iterable[Any]:
    counted = session.scalar(select(func.count()).select_from(ORDERS)) or 0
    return [ACME] * counted + [GLOBEX] * (counted - 1)


@aims
def existence(session: Session) -> Iterable[Any]:
    return [GLOBEX] * bool(session.scalar(select(exists().where(ORDERS.c.id == 2))))


@aims
def error_of_a_function_on_foreign_values(session: Session) -> Iterable[Any]:
    session.execute(text("SELECT count(*) FROM shop_orders WHERE CAST(name AS integer) = 1"))
    return []


@reads
def outbox_records(session: Session) -> Iterable[Any]:
    return session.scalars(select(OutboxRecord.tenant_id))


@reads
def outbox_view(session: Session) -> Iterable[Any]:
    return session.scalars(text("SELECT tenant_id FROM outbox_live"))


@reads
def inbox_records(session: Session) -> Iterable[Any]:
    return (record.tenant_id for record in session.scalars(select(InboxRecord)))


@aims
def inbox_of_another(session: Session) -> Iterable[Any]:
    return session.scalars(select(inbox.c.payload_hash).where(inbox.c.message_id == "m-globex"))


@reads
def messages_tasks_and_answers(session: Session) -> Iterable[Any]:
    tables = (inbox_applied, inbox_attempt, inbox_parked, inbox_task, idempotency)
    return [found for table in tables for found in session.scalars(select(table.c.tenant_id))]


@writes(None)
def core_update(session: Session) -> Any:
    return session.execute(update(ORDERS).where(ORDERS.c.id == 2).values(name="stolen"))


@writes(None)
def words_that_update(session: Session) -> Any:
    return session.execute(text("UPDATE shop_orders SET name = 'stolen' WHERE id = 2"))


@writes(None)
def orm_update(session: Session) -> Any:
    return session.execute(update(Order).where(Order.id == 2).values(name="stolen"))


@writes(BY_THE_SESSION)
def bulk_update_by_primary_key(session: Session) -> Any:
    return session.execute(update(Line), [{"id": 2, "order_id": 1}])


@writes(BY_THE_SESSION)
def bulk_update_mappings(session: Session) -> None:
    session.bulk_update_mappings(Line.__mapper__, [{"id": 2, "order_id": 1}])


@writes(BY_THE_WALL)
def own_row_given_away(session: Session) -> Any:
    return session.execute(update(ORDERS).where(ORDERS.c.id == 1).values(tenant_id=GLOBEX))


@writes(None)
def core_delete(session: Session) -> Any:
    return session.execute(delete(ORDERS).where(ORDERS.c.id == 2))


@writes(None)
def orm_delete(session: Session) -> Any:
    return session.execute(delete(Line).where(Line.id == 2))


@writes(BY_THE_SESSION)
def object_made_up(session: Session) -> None:
    made_up = Line(id=2, order_id=2, tenant_id=ACME)
    make_transient_to_detached(made_up)
    session.add(made_up)
    made_up.order_id = 1
    session.flush()


@writes(BY_THE_WALL)
def core_insert(session: Session) -> Any:
    return session.execute(insert(ORDERS).values(id=9, tenant_id=GLOBEX, name="x", version=1))


@writes(BY_THE_WALL)
def orm_insert(session: Session) -> Any:
    return session.execute(insert(Line), [{"id": 9, "tenant_id": GLOBEX, "order_id": 2}])


@writes(BY_THE_WALL)
def bulk_insert_mappings(session: Session) -> None:
    row = {"id": 9, "tenant_id": GLOBEX, "order_id": 2}
    session.bulk_insert_mappings(Line.__mapper__, [row])


@writes(BY_THE_WALL)
def bulk_save(session: Session) -> None:
    session.bulk_save_objects([Line(id=9, tenant_id=GLOBEX, order_id=2)])


@writes(BY_THE_WALL)
def words_that_insert(session: Session) -> Any:
    values = "(9, 'globex', 2)"
    return session.execute(
        text(f"INSERT INTO shop_lines (id, tenant_id, order_id) VALUES {values}")
    )


@writes(BY_THE_WALL)
def upsert_of_a_foreign_row(session: Session) -> Any:
    row = {"id": 2, "tenant_id": ACME, "name": "stolen", "version": 1}
    statement = upsert(ORDERS).values(row)
    return session.execute(statement.on_conflict_do_update(index_elements=["id"], set_=row))


@writes(None)
def inbox_emptied(session: Session) -> Any:
    return session.execute(delete(inbox).where(inbox.c.message_id == "m-globex"))


@writes(None)
def messages_taken(session: Session) -> Any:
    where = inbox_parked.c.message_id == "m-globex"
    return session.execute(update(inbox_parked).where(where).values(state="waiting"))


@writes(BY_THE_WALL)
def inbox_row(session: Session) -> Any:
    row = {"tenant_id": GLOBEX, "consumer": "c", "message_id": "m-9", "event_type": "T"}
    return session.execute(insert(inbox).values(row))


@writes(BY_THE_WALL)
def inbox_row_upserted(session: Session) -> Any:
    row = {"tenant_id": GLOBEX, "consumer": "c", "message_id": "m-globex", "event_type": "T"}
    statement = upsert(inbox).values(row)
    return session.execute(statement.on_conflict_do_nothing())


@writes(BY_THE_WALL)
def answer_given_away(session: Session) -> Any:
    return session.execute(update(idempotency).values(tenant_id=GLOBEX, key_hash="other"))


@writes(BY_THE_WALL)
def outbox_row(session: Session) -> Any:
    return session.execute(
        text(
            "INSERT INTO outbox (id, tenant_id, occurred_at, shard_hash, event_type, topic, key) "
            "VALUES (gen_random_uuid(), 'globex', now(), 1, 'T', 't', 'k')"
        )
    )
