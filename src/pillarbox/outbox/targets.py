"""The sessions and connections of the user that an outbox or an inbox works on."""

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from pillarbox.errors import InvalidConfig, NoActiveUnitOfWork, TenantMismatch
from pillarbox.outbox.capture import TENANT
from pillarbox.outbox.connection import connection_capture
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.tenancy import DEFAULT_TENANT

Target = Session | Connection


def sync_side(session: object) -> Target:
    """Return the sync object behind an async one; nothing here waits for the database."""
    if isinstance(session, AsyncSession):
        return session.sync_session
    if isinstance(session, AsyncConnection):
        return sync_connection(session)
    sync = isinstance(session, (Session, Connection))
    raise InvalidConfig(
        "session",
        f"is a {'sync ' if sync else ''}{type(session).__name__}",
        "use SyncSqlAlchemyOutbox (and SyncSqlAlchemyInbox) with it"
        if sync
        else "pass an AsyncSession or an AsyncConnection",
    )


def sync_connection(connection: AsyncConnection) -> Connection:
    """Return the sync connection behind an async one."""
    if connection.sync_connection is None:
        raise NoActiveUnitOfWork(
            "the connection is not open yet; enter `async with engine.connect()` first"
        )
    return connection.sync_connection


def sync_only(session: object, twin: str) -> Target:
    """Return a sync session or connection; refuse an async one, and name the class for it."""
    if isinstance(session, (Session, Connection)):
        return session
    raise InvalidConfig("session", f"is a {type(session).__name__}", f"use {twin} with async ones")


def refuse_closed(connection: Connection) -> None:
    """Refuse a connection on which nothing can be recorded any more."""
    if connection.closed:
        raise NoActiveUnitOfWork(
            "the connection is closed, so that no transaction can carry what is to be recorded; "
            "record it before the connection's block ends"
        )


def connection_of(target: Target) -> Connection:
    """Return the connection of the running transaction, which begins if it has not."""
    if isinstance(target, Session):
        return target.connection()
    refuse_closed(target)
    if not target.in_transaction():
        target.begin()  # as the first statement would: SQLite tells by it from autocommit
    return target


def named_tenant(target: Target, tenant_id: str) -> str:
    """Return the tenant that a call names, else the one that its session names."""
    if tenant_id == DEFAULT_TENANT and isinstance(target, Session):
        return str(target.info.get(TENANT, DEFAULT_TENANT))
    return tenant_id


def hold_tenant(
    target: Target, tenant_id: str, settings: CaptureSettings, *, named: bool, what: str
) -> None:
    """Refuse a second tenant where one is required; a session stays inside one that is named."""
    if not settings.tenancy.required:
        return
    if isinstance(target, Connection):
        connection_capture(target, settings).hold(tenant_id, what)
        return
    held = target.info.get(TENANT, tenant_id)
    if held != tenant_id:
        raise TenantMismatch(what, tenant_id, held)
    if named:
        target.info[TENANT] = tenant_id
