"""Count what became of every order, in the databases themselves. Imports nothing of Pillarbox."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

_ORDERS: Final = "SELECT tenant_id, id, status, user_id FROM orders"
_VIEW: Final = "SELECT tenant_id, order_id, status FROM order_view"
_EVENTS: Final = "SELECT tenant_id, id::text, event_type, status FROM outbox"
_INBOX: Final = "SELECT tenant_id, consumer, message_id FROM inbox"
_RESERVED: Final = "SELECT tenant_id, order_id, product_id, quantity, state FROM reservation"
_STOCK: Final = "SELECT tenant_id, product_id, available FROM stock"
_PAYMENTS: Final = "SELECT tenant_id, order_id, status FROM payment"
_NOTICES: Final = """
    SELECT tenant_id, order_id, kind, order_version FROM notification ORDER BY id"""
_MAILS: Final = "SELECT count(*) FROM mail"
_FIRST: Final = "SELECT extract(epoch FROM min(processed_at))::float8 FROM inbox"

# Who must have taken in which event; nobody waits for InventoryReleased. The view is read by itself.
RECEIVERS: Final[Mapping[str, tuple[str, ...]]] = {
    "OrderCreated": ("inventory", "notifications"),
    "OrderConfirmed": ("notifications",),
    "OrderRejected": ("notifications",),
    "InventoryReserved": ("payments",),
    "OutOfStock": ("order-answers",),
    "PaymentProcessed": ("order-answers",),
    "PaymentRefused": ("order-answers", "inventory"),
    "InventoryReleased": (),
}
# The same where a saga leads.
SAGA_RECEIVERS: Final[Mapping[str, tuple[str, ...]]] = {
    "OrderCreated": ("saga-place-order", "notifications"),
    "OrderConfirmed": ("notifications",),
    "OrderRejected": ("notifications",),
    "ReserveInventory": ("inventory-commands",),
    "ReleaseInventory": ("inventory-commands",),
    "Charge": ("payment-commands",),
    "InventoryReserved": ("saga-place-order",),
    "InventoryReleased": ("saga-place-order",),
    "OutOfStock": ("saga-place-order",),
    "PaymentProcessed": ("saga-place-order",),
    "PaymentRefused": ("saga-place-order",),
}

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Books:
    """Everything that the four databases hold."""

    orders: Mapping[tuple[str, str], str]
    buyers: Mapping[tuple[str, str], str]
    view: Mapping[tuple[str, str], str]
    events: list[Row]
    inbox: Counter[Row]
    reserved: list[Row]
    stock: list[Row]
    payments: list[Row]
    notices: list[Row]
    mails: int
    first_event_at: float | None


@dataclass(slots=True)
class Findings:
    """What is wrong: each with the order or event that it is about."""

    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    unordered: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of the last line."""

    orders: int
    events: int
    delivered: int
    effects: int
    findings: Findings
    first_event_at: float | None


def read(databases: Mapping[str, str]) -> Books:
    """Read the four databases, each as its owner."""
    found = {name: _Rows(url) for name, url in databases.items()}
    publishers = [rows for name, rows in found.items() if name != "notifications"]
    firsts = [at for rows in found.values() for (at,) in rows(_FIRST) if at is not None]
    [(mails,)] = found["notifications"](_MAILS)
    orders = found["orders"](_ORDERS)
    return Books(
        orders={(tenant, order): status for tenant, order, status, _ in orders},
        buyers={(tenant, order): user for tenant, order, _, user in orders},
        view={(tenant, order): status for tenant, order, status in found["orders"](_VIEW)},
        events=[row for rows in publishers for row in rows(_EVENTS)],
        inbox=Counter(row for rows in found.values() for row in rows(_INBOX)),
        reserved=found["inventory"](_RESERVED),
        stock=found["inventory"](_STOCK),
        payments=found["payments"](_PAYMENTS),
        notices=found["notifications"](_NOTICES),
        mails=mails,
        first_event_at=min(firsts, default=None),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    url: str

    def __call__(self, statement: str) -> list[Row]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()


def check(
    books: Books,
    accepted: Mapping[tuple[str, str], str],
    stock: Mapping[tuple[str, str], int],
    receivers: Mapping[str, tuple[str, ...]] = RECEIVERS,
) -> Result:
    """Compare what customers were told with what the databases hold.

    `accepted` has the customer of each order that was answered, by tenant and order id; `stock`
    what was put on each shelf, by tenant and product. Somebody else may order too: such orders must
    end exactly once as well. Of shelves that somebody else has filled nobody knows with how much.
    """
    found = Findings()
    ours = {place for place, user in books.buyers.items() if user in accepted.values()}
    absent, unasked = accepted.keys() - books.orders.keys(), ours - accepted.keys()
    found.lost += [f"order {order}: answered with 201 and not there" for _, order in absent]
    found.twice += [f"order {order}: made by a request that had one" for _, order in unasked]
    missing = [*_missing_receipts(books, receivers)]
    found.lost += missing
    found.lost += _unfinished(books)
    found.twice += _repeated(books)
    _check_stock(books, stock, found)
    found.unordered += _unordered(books)
    undelivered = {line.split()[1] for line in missing}
    return Result(
        orders=len(books.orders),
        events=len(books.events),
        delivered=sum(event_id not in undelivered for _, event_id, _, _ in books.events),
        effects=len({row[:2] for row in books.reserved}) + len(books.payments) + len(books.notices),
        findings=found,
        first_event_at=books.first_event_at,
    )


def _missing_receipts(books: Books, receivers: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for tenant, event_id, kind, status in books.events:
        if status != "SENT":
            yield f"event {event_id} ({kind}): {status}"
        for consumer in receivers[kind]:
            if (tenant, consumer, event_id) not in books.inbox:
                yield f"event {event_id} ({kind}): {consumer} has not taken it in"


def _unfinished(books: Books) -> Iterator[str]:
    paid = {(tenant, order): status for tenant, order, status in books.payments}
    held = {(tenant, order) for tenant, order, _, _, state in books.reserved if state == "RESERVED"}
    kinds: dict[Row, set[str]] = defaultdict(set)
    for tenant, order, kind, _ in books.notices:
        kinds[tenant, order].add(kind)
    for place, status in books.orders.items():
        name = f"order {place[1]}"
        if status not in {"CONFIRMED", "REJECTED"}:
            yield f"{name}: still {status}"
            continue
        if books.view.get(place) != status:
            yield f"{name}: {status}, and the view says {books.view.get(place)}"
        if (paid.get(place) == "PROCESSED", place in held) != (status == "CONFIRMED",) * 2:
            yield f"{name}: {status}, with payment {paid.get(place)}, reserved {place in held}"
        if kinds[place] != {"OrderCreated", f"Order{status.capitalize()}"}:
            yield f"{name}: {status}, and its customer was told {sorted(kinds[place])}"
    if books.mails < _endings(books):
        yield f"mails: {_endings(books) - books.mails} were not sent"


def _repeated(books: Books) -> Iterator[str]:
    effects = Counter[Row]()
    effects.update(("reserved", *row[:3]) for row in books.reserved)
    effects.update(("charged", *row[:2]) for row in books.payments)
    effects.update(("told", *row[:3]) for row in books.notices)
    for place, times in effects.items():
        if times > 1:
            yield f"order {place[2]}: {place[0]} {times} times"
    if books.mails > _endings(books):
        yield f"mails: {books.mails - _endings(books)} too many"


def _endings(books: Books) -> int:
    """Count what customers were told by mail: how their orders ended."""
    return sum(kind != "OrderCreated" for _, _, kind, _ in books.notices)


def _check_stock(books: Books, stock: Mapping[tuple[str, str], int], found: Findings) -> None:
    """Compare each shelf: what is left and what is reserved is what there was."""
    left = {(tenant, product): available for tenant, product, available in books.stock}
    taken = Counter[Row]()
    for tenant, _, product, quantity, state in books.reserved:
        if state == "RESERVED":
            taken[tenant, product] += quantity
    for (tenant, product), filled in stock.items():
        gone = filled - left.get((tenant, product), 0) - taken[tenant, product]
        if gone > 0:
            found.twice.append(f"stock {product} of {tenant}: {gone} taken for nobody")
        elif gone < 0:
            found.lost.append(f"stock {product} of {tenant}: {-gone} promised and not taken")


def _unordered(books: Books) -> Iterator[str]:
    last: dict[Row, int] = {}
    for tenant, order, kind, version in books.notices:
        if version < last.get((tenant, order), 0):
            yield f"order {order}: {kind} came after a later event"
        last[tenant, order] = version
