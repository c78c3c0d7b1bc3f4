"""Rows of other hands, whose headers no bus could send, and payloads that compress well."""

from typing import Any

import pytest

from tests.projector_stores.rig import Rig, numbers, on_postgres


@pytest.mark.parametrize("metadata", [{"a": "\ud800"}, {"a": 1}, ["a"], "a", {"a": None}])
async def test_headers_that_are_no_texts_by_name_are_told(rig: Rig, metadata: Any) -> None:
    await rig.record(1, event_metadata=metadata)
    await rig.record(2, event_metadata={"a": "b"})
    owner = await rig.owner()

    odd, good = await owner.claim()

    assert (odd.unreadable, good.unreadable) == (True, False)
    assert dict(good.envelope.headers) == {"a": "b"}


@on_postgres
async def test_a_claim_counts_payloads_as_they_are_sent(rig: Rig) -> None:
    await rig.record(*range(1, 7), payload={"note": "x" * 200_000})
    owner = await rig.owner(batch_bytes=500_000)

    events = await owner.claim()

    assert 1 <= len(events) <= 3
    assert numbers(events) == list(range(1, len(events) + 1))
