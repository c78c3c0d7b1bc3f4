"""What cannot happen on SQLite, which has one writer and looks at foreign keys only on demand."""

from typing import Any

import httpx
import pytest
from sqlalchemy import text

from pillarbox.idempotency.store import CommandStore
from tests.idempotency.conftest import Make, client_of
from tests.idempotency.keys import K1, ORDER, keys
from tests.idempotency.shop import Shop
from tests.support.database import Database, on_postgres

pytestmark = on_postgres


async def test_a_commit_that_fails_gives_a_problem_and_never_the_answer(
    database: Database, shop: Shop, client: httpx.AsyncClient
) -> None:
    for _ in range(2):
        answer = await client.post("/answers/lost-line", json=ORDER, headers=K1)

        assert answer.status_code == 500
        assert answer.json()["type"].endswith("command-not-committed")

    assert shop.executed == ["lost-line", "lost-line"]
    assert await database.order_ids() == []
    assert await keys(database) == 0


async def test_who_is_overtaken_after_a_rollback_gives_the_other_ones_answer(
    database: Database, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let another request do the whole command between the rollback and the second claim."""
    ours, other = make(), make()
    await overtake(monkeypatch, database)

    async with client_of(ours) as client, client_of(other) as rival:
        first = await client.post("/rolled-back", json=ORDER, headers=K1)
        again = await rival.post("/rolled-back", json=ORDER, headers=K1)

    assert (first.status_code, first.text) == (201, "of the other")
    assert first.headers["idempotency-replayed"] == "true"
    assert again.content == first.content


async def overtake(monkeypatch: pytest.MonkeyPatch, database: Database) -> None:
    """Have the second claim meet the committed row of somebody else."""
    store: Any = CommandStore.__subclasses__()
    (postgres,) = [kind for kind in store if kind.__name__ == "PostgresCommands"]
    claim, calls = postgres.claim, []

    def overtaken(self: Any, connection: Any, bid: Any) -> Any:
        calls.append(bid)
        if len(calls) == 2:
            with connection.engine.connect() as elsewhere:
                claimed = claim(self, elsewhere, bid)
                elsewhere.execute(
                    text(
                        "UPDATE idempotency SET state = 'done', status_code = 201, headers = '[]', "
                        "body = 'of the other'"
                    )
                )
                elsewhere.commit()
            assert type(claimed).__name__ == "Claimed"
        return claim(self, connection, bid)

    monkeypatch.setattr(postgres, "claim", overtaken)
