"""What the live view shows, read from the databases."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

_ORDERS: Final = """
    SELECT tenant_id, count(*), count(*) FILTER (WHERE status = 'CONFIRMED'),
        count(*) FILTER (WHERE status = 'REJECTED')
    FROM orders GROUP BY tenant_id ORDER BY tenant_id"""
_OUTBOX: Final = """
    SELECT count(*), count(*) FILTER (WHERE status = 'SENT'),
        coalesce(extract(epoch FROM clock_timestamp() - min(created_at)
            FILTER (WHERE status <> 'SENT')), 0)::float8
    FROM outbox"""
_VIEWED: Final = "SELECT count(*) FROM order_view WHERE status <> 'CREATED'"
_RESERVED: Final = """
    SELECT count(DISTINCT (tenant_id, order_id)),
        count(DISTINCT (tenant_id, order_id)) FILTER (WHERE state = 'RELEASED')
    FROM reservation"""
_PAID: Final = "SELECT count(*), count(*) FILTER (WHERE status = 'REFUSED') FROM payment"
_TOLD: Final = "SELECT (SELECT count(*) FROM notification), (SELECT count(*) FROM mail)"


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders of a tenant."""

    total: int = 0
    confirmed: int = 0
    rejected: int = 0

    @property
    def open(self) -> int:
        return self.total - self.confirmed - self.rejected


@dataclass(frozen=True, slots=True)
class Outbox:
    """The events of a service; `oldest` is how long the first undelivered one waits, in seconds."""

    events: int = 0
    delivered: int = 0
    oldest: float = 0.0

    @property
    def waiting(self) -> int:
        return self.events - self.delivered


@dataclass(frozen=True, slots=True)
class Figures:
    """A look at the whole shop."""

    orders: Mapping[str, Orders] = field(default_factory=dict)
    outboxes: Mapping[str, Outbox] = field(default_factory=dict)
    viewed: int = 0
    reservations: int = 0
    released: int = 0
    payments: int = 0
    refused: int = 0
    notices: int = 0
    mails: int = 0

    @property
    def ordered(self) -> int:
        return sum(each.total for each in self.orders.values())

    @property
    def open(self) -> int:
        return sum(each.open for each in self.orders.values())

    @property
    def events(self) -> int:
        return sum(each.events for each in self.outboxes.values())

    @property
    def delivered(self) -> int:
        return sum(each.delivered for each in self.outboxes.values())

    @property
    def waiting(self) -> int:
        return self.events - self.delivered

    @property
    def oldest(self) -> float:
        return max((each.oldest for each in self.outboxes.values()), default=0.0)

    @property
    def effects(self) -> int:
        return self.reservations + self.payments + self.notices

    @property
    def at_rest(self) -> bool:
        """Whether everything that will happen has happened."""
        told = 2 * self.mails == self.notices == 2 * self.ordered
        done = self.viewed == self.ordered and self.released == self.refused
        return not self.open and not self.waiting and told and done


class Looker:
    """Read figures over one connection to each database."""

    def __init__(self, databases: Mapping[str, str]) -> None:
        self._connections = {
            name: psycopg.connect(url, autocommit=True) for name, url in databases.items()
        }

    def look(self) -> Figures:
        [(viewed,)] = self._ask("orders", _VIEWED)
        [(reservations, released)] = self._ask("inventory", _RESERVED)
        [(payments, refused)] = self._ask("payments", _PAID)
        [(notices, mails)] = self._ask("notifications", _TOLD)
        publishers = [name for name in self._connections if name != "notifications"]
        return Figures(
            orders={tenant: Orders(*counts) for tenant, *counts in self._ask("orders", _ORDERS)},
            outboxes={name: Outbox(*self._ask(name, _OUTBOX)[0]) for name in publishers},
            viewed=viewed,
            reservations=reservations,
            released=released,
            payments=payments,
            refused=refused,
            notices=notices,
            mails=mails,
        )

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _ask(self, name: str, statement: str) -> list[tuple[Any, ...]]:
        return self._connections[name].execute(statement.encode()).fetchall()
