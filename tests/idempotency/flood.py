"""Claim random keys of one caller, as one of several processes.

    python -m tests.idempotency.flood DATABASE_URL KEYS QUOTA

It says how many keys were claimed, and how many were refused for the quota.
"""

import sys
from collections import Counter
from uuid import uuid4

from sqlalchemy import create_engine

from pillarbox.idempotency.decision import Claimed, OverQuota
from pillarbox.idempotency.postgres import PostgresCommands
from pillarbox.idempotency.scope import Scope
from pillarbox.idempotency.settings import IdempotencySettings
from pillarbox.idempotency.store import Bid

AT_ONCE = 20
"""How many claims a transaction has, which others do not see before it commits."""


def main(url: str, keys: int, quota: int) -> None:
    engine = create_engine(url)
    store = PostgresCommands(IdempotencySettings(quota=quota))
    seen: Counter[type] = Counter()
    with engine.connect() as connection:
        for _ in range(0, keys, AT_ONCE):
            for _ in range(AT_ONCE):
                scope = Scope.of("default", "mallory", "POST /orders", str(uuid4()))
                seen[type(store.claim(connection, Bid(scope, "f")))] += 1
            connection.commit()
    engine.dispose()
    print(seen[Claimed], seen[OverQuota])  # noqa: T201 - the parent reads it


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
