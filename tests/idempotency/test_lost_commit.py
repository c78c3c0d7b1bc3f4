"""A connection lost during the commit of a command: the client learns the outcome by repeating."""

import httpx
import pytest

from tests.idempotency.conftest import Make, client_of
from tests.idempotency.shop import make_shop
from tests.support.database import Database, on_postgres
from tests.support.faultproxy import CLIENT, SERVER, Cut, FaultProxy, Rule, Seen, Toward
from tests.support.waiting import until

pytestmark = on_postgres

ORDER = {"id": "o-1", "total": 7}
K1 = {"Idempotency-Key": "k-1"}


async def lose(database: Database, toward: Toward) -> httpx.Response:
    """Send a command whose COMMIT is lost on its way to the server, or whose reply is."""
    assert database.url.host is not None
    assert database.url.port is not None
    async with FaultProxy(database.url.host, database.url.port) as proxy:
        url = database.url.set(port=proxy.port)
        shop = make_shop(url.render_as_string(hide_password=False))
        async with client_of(shop) as client:
            warm = await client.post("/sync", json=ORDER, headers={"Idempotency-Key": "warm"})
            assert warm.status_code == 200
            proxy.plan(Rule(toward, Seen(b"COMMIT"), Cut()))
            answer = await client.post("/orders", json=ORDER, headers=K1)
        await shop.box.engine.dispose()
    return answer


@pytest.mark.parametrize(
    ("toward", "committed"), [(CLIENT, True), (SERVER, False)], ids=["reply lost", "never arrived"]
)
async def test_a_lost_commit_is_unknown_and_a_repetition_settles_it(
    database: Database, make: Make, toward: Toward, committed: bool
) -> None:
    shop = make()
    lost = await lose(database, toward)
    answers: list[httpx.Response] = []

    async with client_of(shop) as client:

        async def settled() -> bool:
            # The server may need a moment to notice that the connection is gone.
            answers.append(await client.post("/orders", json=ORDER, headers=K1))
            return answers[-1].status_code != 409

        await until(settled, "the end of the lost transaction")

    assert lost.status_code == 503
    assert lost.json()["type"].endswith("command-unknown")
    assert lost.headers["retry-after"] == "1"
    assert (answers[-1].status_code, answers[-1].json()) == (201, ORDER)
    assert ("idempotency-replayed" in answers[-1].headers) is committed
    assert shop.executed == ([] if committed else ["o-1"])
    assert await database.event_types() == ["OrderPlaced"]
