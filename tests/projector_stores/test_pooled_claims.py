"""Claims through PgBouncer, which gives a new connection the backend of the one before."""

from typing import Any

import psycopg
import pytest

from pillarbox.projector.postgres.claims import Claims
from pillarbox.projector.store import StoreUnavailable
from pillarbox.servers import PgBouncer
from tests.projector_stores.rig import Rig, numbers


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
async def test_what_was_read_and_could_not_be_claimed_is_read_again(
    rig: Rig, pgbouncer: PgBouncer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.dsn = pgbouncer.url_of(rig.database.url.database or "")
    await rig.record(1)
    owner = await rig.owner()
    assert numbers(await owner.claim()) == [1]
    await rig.record(2)

    async def cut(*_: Any) -> bool:
        raise psycopg.OperationalError("the server closed the connection")

    with monkeypatch.context() as patched:
        patched.setattr(Claims, "_claim", cut)
        patched.setattr(Claims, "_claims_at_once", lambda *_: False)
        with pytest.raises(StoreUnavailable):
            await owner.claim(in_hand={1})
    await rig.record(3)

    assert numbers(await owner.claim(in_hand={1})) == [2, 3]
