"""A batch may touch more rows than a statement has parameters."""

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from pillarbox.event.envelope import MessageEnvelope
from pillarbox.readmodel.changes import Change, Delete, Increment
from pillarbox.readmodel.writing import Queued, Writer
from tests.readmodel.rig import Accounts, Deposited, Rig
from tests.support.database import on

MANY = 33_000  # asyncpg takes 32,767 parameters


def queued(change: Change, version: int) -> Queued:
    row_id = str(change.row_id)
    envelope = MessageEnvelope(
        f"{row_id}-{version}", "E", aggregate_type="account", aggregate_id=row_id,
        aggregate_version=version,
    )  # fmt: skip
    return Queued(envelope, (change,))


@on("postgres18+asyncpg", "sqlite+aiosqlite")
async def test_a_batch_touches_more_rows_than_a_statement_has_parameters(rig: Rig) -> None:
    """It once failed as a whole, and each of its events too: the model stood still for good."""
    writer, ids = Writer(Accounts(), 1), [f"a{number}" for number in range(MANY)]
    for version in (1, 2):
        async with rig.database.sessions.begin() as session:
            deposits = [queued(Increment(row_id, cents=version), version) for row_id in ids]
            await writer.write(session, "default", deposits)
    cents = await rig.cents()

    async with rig.database.sessions.begin() as session:
        await writer.write(session, "default", [queued(Delete(row_id), 3) for row_id in ids])

    assert cents == dict.fromkeys(ids, 3)
    assert await rig.rows() == {}
    marks = "readmodel_applied WHERE version = 3"
    assert await rig.count(marks) == MANY


@on("sqlite+aiosqlite")
async def test_the_connection_is_asked_for_once_however_many_events_a_batch_has(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked for with each event: half of the time that events took beside their methods."""
    asked, ask = 0, AsyncSession.connection

    async def counted(session: AsyncSession) -> AsyncConnection:
        nonlocal asked
        asked += 1
        return await ask(session)

    await rig.runner().drain()
    monkeypatch.setattr(AsyncSession, "connection", counted)
    counts = []
    for events in (1, 40):
        await rig.record(*(Deposited("a", 1) for _ in range(events)))
        asked = 0
        await rig.runner().look()
        counts.append(asked)

    assert await rig.cents() == {"a": 41}
    assert counts[0] == counts[1]
