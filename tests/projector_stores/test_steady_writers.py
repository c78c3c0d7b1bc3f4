"""Writers that never pause do not keep a projector with a backlog from reading."""

from typing import Any

import pytest

from pillarbox.projector.postgres.claims import Claims
from tests.projector_stores.rig import Rig

BACKLOG = 200
LIMIT = 16


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
async def test_a_backlog_is_claimed_although_a_few_rows_come_before_each_read(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.record(*range(1, BACKLOG + 1))
    owner = await rig.owner()
    written, read = [BACKLOG], Claims._read

    async def read_after_a_commit(self: Claims, *arguments: Any, **options: Any) -> Any:
        # Less than the claim may take, and little for what a statement takes on a busy server.
        first = written[0] + 1
        written[0] += LIMIT // 4
        await rig.record(*range(first, written[0] + 1))
        return await read(self, *arguments, **options)

    monkeypatch.setattr(Claims, "_read", read_after_a_commit)

    claimed = [len((await owner.claim_once(LIMIT)).events) for _ in range(20)]

    assert sum(claimed) > 0
