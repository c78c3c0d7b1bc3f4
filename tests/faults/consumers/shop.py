"""A shop: orders in one database, a projector, a broker, and payments in another database."""

import json
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import psycopg

from tests.faults.consumers.buses import PARTITIONS
from tests.faults.consumers.checker import Report, check
from tests.faults.consumers.history import Deposit, read_history
from tests.faults.consumers.rig import LIMIT, Bank, Crew, end_gently
from tests.faults.process import Process

PAYMENTS: Final = "payments"
# The event's tenant is the default one: the shop has no others.
_ORDERS: Final = """
    SELECT 'default', customer, n, message_id, total FROM customer_order ORDER BY customer, n"""
_UNSENT: Final = "SELECT count(*) FROM outbox WHERE status <> 'SENT'"


@dataclass(slots=True)
class Shop:
    """An order service and a payment service, with everything that runs for them."""

    orders: Crew
    payments: Bank
    writers: list[Process] = field(default_factory=list)
    projectors: list[Process] = field(default_factory=list)

    @property
    def journal(self) -> Path:
        """What the order service was told to be committed."""
        return self.orders.folder / "orders.jsonl"

    def start_writer(self) -> None:
        number = len(self.writers)
        started = self.orders.start(
            f"writer-{number}",
            "tests.faults.consumers.order_process",
            database=self.orders.database,
            topic=self.payments.topic,
            journal=self.journal,
            seed=self.payments.seed + number,
        )
        self.writers.append(started)

    def start_projector(self) -> None:
        name = f"p{len(self.projectors)}"
        started = self.orders.start(
            name,
            "tests.faults.projector_process",
            database=self.orders.database,
            bus=self.payments.ground.server.url,
            name=name,
            trace=self.orders.folder / f"{name}.jsonl",
            partitions=PARTITIONS,
        )
        self.projectors.append(started)

    def kill(self, process: Process) -> None:
        process.signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, process.said()

    def come_to_rest(self) -> None:
        """Let the order service end, and wait until its orders are sent and paid."""
        end_gently([writer for writer in self.writers if writer.running])
        self.orders.until(lambda: self.orders.ask(_UNSENT) == 0, "all orders are sent")
        placed = self.orders.ask("SELECT count(*) FROM customer_order")
        bank = self.payments
        bank.crew.until(lambda: bank.effects() >= placed, f"{placed} orders are paid")
        bank.crew.until(lambda: bank.parked() == 0, "nothing waits in the table")

    def stop(self) -> None:
        self.payments.stop_members()
        end_gently([projector for projector in self.projectors if projector.running], LIMIT)

    def lost(self) -> set[str]:
        """Return orders that the database acknowledged and does not have."""
        known = {order.message_id for order in self._orders()}
        lines = self.journal.read_text("utf-8").splitlines()
        told = {json.loads(line)["message_id"] for line in lines if line.endswith("}")}
        return told - known

    def report(self) -> Report:
        """Check that every order in the one database is paid once in the other."""
        bank = self.payments
        traces = [member.trace for member in bank.members]
        found = read_history(
            bank.crew.database, bank.consumers, journals=[], traces=traces, faults=None
        )
        return check(replace(found, published=self._orders()))

    def _orders(self) -> list[Deposit]:
        with psycopg.connect(self.orders.database, autocommit=True) as connection:
            return [Deposit(*row) for row in connection.execute(_ORDERS)]
