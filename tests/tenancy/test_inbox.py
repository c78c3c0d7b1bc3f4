"""Messages of several tenants, claimed by an application behind the wall."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from pillarbox import InboxMessage, SqlAlchemyInbox, SqlAlchemyOutbox, tenant
from pillarbox.errors import InvalidKey, TenantMismatch, TenantRequired
from tests.tenancy.shop import ACME, GLOBEX
from tests.tenancy.wall import REQUIRED, Wall, one_wall, two_drivers

TARGETS = ("walled session", "plain session", "connection")
Target = AsyncSession | AsyncConnection
pytestmark = pytest.mark.parametrize("kind", TARGETS)


@asynccontextmanager
async def opened(wall: Wall, kind: str) -> AsyncIterator[Target]:
    """Open a session that stays inside a tenant, one that knows of none, or a connection."""
    if kind == "walled session":
        async with wall.sessions() as session:
            yield session
    elif kind == "plain session":
        async with AsyncSession(wall.engine) as session:
            yield session
    else:
        async with wall.engine.connect() as connection:
            yield connection


def inbox(target: Target, tenant_id: str = "default") -> SqlAlchemyInbox:
    return SqlAlchemyInbox(target, tenant_id, consumer="c", settings=REQUIRED)


async def test_a_message_is_claimed_for_the_tenant_of_the_context(wall: Wall, kind: str) -> None:
    for name in (ACME, GLOBEX):
        with tenant(name):
            async with opened(wall, kind) as target:
                assert await inbox(target).claim("m-1", event_type="T")
                assert await inbox(target).claim_many(
                    [InboxMessage(message_id=one, event_type="T") for one in ("m-1", "m-2")]
                ) == {"m-2"}
                await target.commit()
                assert await inbox(target).is_processed("m-1")
                record = await inbox(target).get_record("m-1")

        assert record is not None
        assert record.tenant_id == name

    taken = wall.rows("SELECT tenant_id FROM inbox WHERE message_id = 'm-1' ORDER BY 1")
    assert taken == [(ACME,), (GLOBEX,)]


@two_drivers
async def test_a_tenant_can_be_named(wall: Wall, kind: str) -> None:
    async with opened(wall, kind) as target:
        assert await inbox(target, ACME).claim("m-1", event_type="T")
        assert not await inbox(target, ACME).claim("m-acme", event_type="T")
        await target.commit()

    assert wall.rows("SELECT tenant_id FROM inbox WHERE message_id = 'm-1'") == [(ACME,)]


@two_drivers
async def test_without_a_tenant_every_call_is_refused(wall: Wall, kind: str) -> None:
    async with opened(wall, kind) as target:
        box = inbox(target)
        with pytest.raises(TenantRequired, match=r"inbox\.claim"):
            await box.claim("m-1", event_type="T")
        with pytest.raises(TenantRequired, match=r"inbox\.mark_processed"):
            await box.mark_processed("m-1", "T")
        with pytest.raises(TenantRequired, match=r"inbox\.is_processed"):
            await box.is_processed("m-1")
        with pytest.raises(TenantRequired, match=r"inbox\.get_record"):
            await box.get_record("m-1")
        with pytest.raises(TenantRequired, match=r"inbox\.claim_many"):
            await box.claim_many([InboxMessage(message_id="m-1", event_type="T")])
        with pytest.raises(TenantRequired, match=r"inbox\.cleanup_old_records"):
            await box.cleanup_old_records()


@one_wall
@pytest.mark.parametrize("name", ["", "a'b", "*", "x" * 65])
async def test_what_is_no_tenant_is_refused(wall: Wall, kind: str, name: str) -> None:
    async with opened(wall, kind) as target:
        with pytest.raises(InvalidKey, match="tenant_id"):
            await inbox(target, name).claim("m-1", event_type="T")


@two_drivers
async def test_another_tenant_than_the_context_is_refused(wall: Wall, kind: str) -> None:
    with tenant(ACME):
        async with opened(wall, kind) as target:
            with pytest.raises(TenantMismatch):
                await inbox(target, GLOBEX).claim("m-1", event_type="T")


@two_drivers
async def test_a_second_tenant_in_one_transaction_is_refused(wall: Wall, kind: str) -> None:
    async with opened(wall, kind) as target:
        with tenant(ACME):
            await inbox(target).claim("m-1", event_type="T")
        with tenant(GLOBEX), pytest.raises(TenantMismatch):
            await inbox(target).claim("m-1", event_type="T")


@one_wall
async def test_inbox_and_outbox_of_a_connection_have_one_tenant(wall: Wall, kind: str) -> None:
    async with opened(wall, kind) as target:
        await inbox(target, ACME).claim("m-1", event_type="T")
        with pytest.raises(TenantMismatch):
            await SqlAlchemyOutbox(target, GLOBEX, settings=REQUIRED).add(topic="t", payload={})


@two_drivers
async def test_after_a_savepoint_was_rolled_back_the_tenant_is_known_again(
    wall: Wall, kind: str
) -> None:
    with tenant(ACME):
        async with opened(wall, kind) as target:
            savepoint = await target.begin_nested()
            assert await inbox(target).claim("m-1", event_type="T")
            await savepoint.rollback()
            assert await inbox(target).claim("m-1", event_type="T")
            assert not await inbox(target).claim("m-acme", event_type="T")


@two_drivers
async def test_squatting_on_an_id_has_no_effect_and_no_other_answer(wall: Wall, kind: str) -> None:
    before = wall.everything_of(GLOBEX)

    with tenant(ACME):
        async with opened(wall, kind) as target:
            box = inbox(target)
            taken, free = "m-globex", "m-nobody"
            for message_id in (taken, free):
                assert not await box.is_processed(message_id, payload=b"guess")
                assert await box.claim(message_id, event_type="T", payload=b"guess")
            await target.commit()

    assert wall.everything_of(GLOBEX) == before


@one_wall
async def test_a_tenant_does_not_wait_for_anothers_claim(wall: Wall, kind: str) -> None:
    async with opened(wall, kind) as mine, opened(wall, kind) as theirs:
        with tenant(GLOBEX):
            await inbox(theirs).claim("m-1", event_type="T")
        with tenant(ACME):
            async with asyncio.timeout(10):
                assert await inbox(mine).claim("m-1", event_type="T")


@two_drivers
async def test_a_cleanup_takes_only_what_is_the_tenants_own(wall: Wall, kind: str) -> None:
    wall.rows("UPDATE inbox SET processed_at = now() - interval '40 days' RETURNING 1")
    with tenant(ACME):
        async with opened(wall, kind) as target:
            assert await inbox(target).cleanup_old_records() == 1

    assert wall.rows("SELECT tenant_id FROM inbox") == [(GLOBEX,)]
