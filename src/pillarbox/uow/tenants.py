"""Keep a session inside its tenant, when tenancy is switched on.

Row-level security is the wall: each transaction tells the database its tenant with a setting that
ends with the transaction. The filters and checks here stand in front of it, for clear errors and
for databases without such policies.
"""

from typing import Any

from sqlalchemy import Connection, String, event
from sqlalchemy.orm import (
    Mapped,
    ORMExecuteState,
    Session,
    SessionTransaction,
    mapped_column,
    with_loader_criteria,
)

from pillarbox.errors import TenantMismatch
from pillarbox.outbox.capture import HELD_TENANT, SETTINGS, TENANT, capture_of
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.tenancy import DEFAULT_TENANT, enter_tenant


class TenantScoped:
    """Mix this into a mapped class whose rows belong to tenants: it has `tenant_id`."""

    tenant_id: Mapped[str] = mapped_column(String(64))


def _walled(session: Session) -> CaptureSettings | None:
    """Return a session's settings if it must stay inside a tenant."""
    capture = capture_of(session)
    settings: CaptureSettings | None = (
        session.info.get(SETTINGS) if capture is None else capture.settings
    )
    return settings if settings is not None and settings.tenancy.required else None


def _tenant(session: Session, settings: CaptureSettings) -> str:
    named: str = session.info.get(TENANT, DEFAULT_TENANT)
    return settings.tenancy.resolve(named, "the session")


@event.listens_for(Session, "after_begin")
def _enter(session: Session, transaction: SessionTransaction, connection: Connection) -> None:
    settings = _walled(session)
    if settings is None or transaction.nested:
        return
    tenant_id = _tenant(session, settings)
    held: str | None = session.info.get(HELD_TENANT)
    if held is not None and held != tenant_id and len(session.identity_map) > 0:
        # Objects of the first tenant would be handed out to the second.
        raise TenantMismatch("a session that still holds objects", tenant_id, held)
    session.info[HELD_TENANT] = tenant_id
    enter_tenant(connection, tenant_id)


@event.listens_for(Session, "do_orm_execute")
def _filter(state: ORMExecuteState) -> None:
    settings = _walled(state.session)
    if settings is None or state.is_column_load:
        return
    tenant_id = _tenant(state.session, settings)
    state.statement = state.statement.options(
        with_loader_criteria(
            TenantScoped,
            lambda kind: kind.tenant_id == tenant_id,
            include_aliases=True,
        )
    )


@event.listens_for(Session, "before_flush")
def _check(session: Session, flush_context: Any, instances: Any) -> None:
    del flush_context, instances
    settings = _walled(session)
    if settings is None:
        return
    tenant_id = _tenant(session, settings)
    for instance in (*session.new, *session.dirty, *session.deleted):
        if isinstance(instance, TenantScoped):
            _check_owner(instance, tenant_id)


def _check_owner(instance: TenantScoped, tenant_id: str) -> None:
    """Give an object without a tenant this one; refuse one that is another's."""
    owner: str | None = instance.tenant_id
    if owner is None:
        instance.tenant_id = tenant_id
    elif owner != tenant_id:
        raise TenantMismatch(type(instance).__name__, owner, tenant_id)
