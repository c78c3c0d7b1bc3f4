"""What a drill of consumers leaves behind, read by plain SQL and from files."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg

Place = tuple[str, str, str]
"""Consumer, tenant and message id: one effect each."""
Holder = tuple[str, str, str]
"""Consumer, tenant and account: one order each."""


class Deposit(NamedTuple):
    """A deposit that the broker has accepted, once or more often."""

    tenant: str
    account: str
    n: int
    message_id: str
    amount: int


class Effect(NamedTuple):
    """What a handler wrote in a transaction that was committed; in the order of numbers."""

    consumer: str
    tenant: str
    account: str
    n: int
    message_id: str
    balance: int
    attempt: int
    process: str


class Account(NamedTuple):
    """An account at the end."""

    balance: int
    trail: str


class Leftover(NamedTuple):
    """A row that should be gone at rest."""

    table: str
    consumer: str
    tenant: str
    message_id: str
    reason: str

    @property
    def place(self) -> Place:
        return self.consumer, self.tenant, self.message_id


@dataclass(frozen=True, slots=True)
class History:
    """All that the checker looks at; `faults` counts what may have brought a message again."""

    consumers: Sequence[str]
    published: Sequence[Deposit] = ()
    effects: Sequence[Effect] = ()
    accounts: Mapping[Holder, Account] = field(default_factory=dict)
    inbox: Mapping[Place, int] = field(default_factory=dict)
    leftovers: Sequence[Leftover] = ()
    calls: Mapping[Place, int] = field(default_factory=dict)
    duplicates: int = 0
    faults: int | None = None


_EFFECTS: Final = """
    SELECT consumer, tenant, account, n, message_id, balance, attempt, process
    FROM effect ORDER BY number"""
_ACCOUNTS: Final = "SELECT consumer, tenant, account, balance, trail FROM account"
_INBOX: Final = "SELECT consumer, tenant_id, message_id FROM inbox"
_LEFTOVERS: Final = """
    SELECT 'inbox_parked', consumer, tenant_id, message_id, state || ' ' || reason
    FROM inbox_parked
    UNION ALL
    SELECT 'inbox_attempt', consumer, tenant_id, message_id, format('%s started, %s failed', started, failed)
    FROM inbox_attempt
    UNION ALL
    SELECT 'inbox_task', consumer, tenant_id, message_id, name FROM inbox_task"""


def read_history(
    database: str,
    consumers: Sequence[str],
    *,
    journals: Iterable[Path],
    traces: Iterable[Path],
    faults: int | None,
) -> History:
    """Gather everything at rest: nothing may be running any more."""
    lines = [line for trace in traces for line in lines_of(trace)]
    with psycopg.connect(database, autocommit=True) as connection:
        return History(
            consumers=consumers,
            published=[Deposit(**said) for path in journals for said in lines_of(path)],
            effects=[Effect(*row) for row in connection.execute(_EFFECTS)],
            accounts={
                (consumer, tenant, account): Account(*rest)
                for consumer, tenant, account, *rest in connection.execute(_ACCOUNTS)
            },
            inbox=Counter((c, t, m) for c, t, m in connection.execute(_INBOX)),
            leftovers=[Leftover(*row) for row in connection.execute(_LEFTOVERS)],
            calls=calls_of(lines),
            duplicates=sum(
                line["messages"]
                for line in lines
                if line["step"] == "ended" and line["outcome"] == "duplicate"
            ),
            faults=faults,
        )


def calls_of(lines: Iterable[Mapping[str, Any]]) -> Counter[Place]:
    """Count the calls of handlers in a trace."""
    called = (line["message"] for line in lines if line["step"] == "called")
    return Counter((consumer, tenant, message_id) for consumer, tenant, message_id in called)


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """Read a file of JSON lines; the last may be cut by a kill."""
    for line in path.read_text("utf-8").splitlines():
        if line.endswith("}"):
            yield json.loads(line)
