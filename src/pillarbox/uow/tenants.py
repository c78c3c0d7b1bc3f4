"""Keep a session inside its tenant, when tenancy is switched on.

Row-level security is the wall: each transaction tells the database its tenant with a setting that
ends with the transaction. The filters and checks here stand in front of it, for clear errors and
for databases without such policies. They do not filter Core and textual statements and do not see
bulk writes; the wall does.
"""

import weakref
from functools import partial
from typing import Any, Final, cast

from sqlalchemy import Connection, String, event, inspect
from sqlalchemy.orm import (
    Mapped,
    ORMExecuteState,
    Session,
    SessionTransaction,
    UserDefinedOption,
    mapped_column,
    with_loader_criteria,
)

from pillarbox.errors import TenantMismatch, UnitOfWorkError
from pillarbox.outbox.capture import HELD_TENANT, SETTINGS, TENANT, capture_of
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.tenancy import DEFAULT_TENANT, enter_tenant

# Whether the running transaction has told the database its tenant; absent until it has begun.
_ENTERED: Final = "pillarbox.entered_tenant"
# The ways to an object that the session holds: no SQL is run, so no event is sent.
_SILENT_READS: Final = ("_identity_lookup", "merge")


class TenantScoped:
    """Mix this into a mapped class whose rows belong to tenants: it has `tenant_id`.

        class Order(TenantScoped, Base):
            __tablename__ = "orders"
            tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
            id: Mapped[str] = mapped_column(String(64), primary_key=True)

    Let the tenant begin the primary key and every unique key, as here: by a unique violation, a
    key without it tells one tenant which keys another one uses.
    """

    # The old value is loaded before a change, so that a change of tenant is always seen.
    tenant_id: Mapped[str] = mapped_column(String(64), active_history=True)


def _walled(session: Session) -> CaptureSettings | None:
    """Return a session's settings if it must stay inside a tenant."""
    capture = capture_of(session)
    settings: CaptureSettings | None = (
        session.info.get(SETTINGS) if capture is None else capture.settings
    )
    return settings if settings is not None and settings.tenancy.required else None


def _tenant(session: Session, settings: CaptureSettings) -> str:
    """Return the session's tenant; refuse another one than its transaction or its objects have."""
    if session.info.get(_ENTERED) is False:
        raise UnitOfWorkError(
            "this transaction could not tell the database its tenant, so that it would see no "
            "rows; roll it back and begin anew"
        )
    named: str = session.info.get(TENANT, DEFAULT_TENANT)
    tenant_id = settings.tenancy.resolve(named, "the session")
    held: str | None = session.info.get(HELD_TENANT)
    busy = _ENTERED in session.info or len(session.identity_map) > 0
    if busy and held is not None and held != tenant_id:
        # Objects of the first tenant would be handed out to the second.
        raise TenantMismatch("a session in a transaction or with objects", tenant_id, held)
    return tenant_id


@event.listens_for(Session, "after_begin")
def _enter(session: Session, transaction: SessionTransaction, connection: Connection) -> None:
    settings = _walled(session)
    if settings is None or transaction.nested:
        return
    try:
        tenant_id = _tenant(session, settings)
        enter_tenant(connection, tenant_id)
    except BaseException:
        # The session keeps the connection all the same, in a transaction without a tenant.
        session.info[_ENTERED] = False
        raise
    session.info[HELD_TENANT] = tenant_id
    session.info[_ENTERED] = True
    _guard(session)


@event.listens_for(Session, "after_transaction_end")
def _leave(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:
        session.info.pop(_ENTERED, None)


@event.listens_for(Session, "do_orm_execute")
def _filter(state: ORMExecuteState) -> None:
    settings = _walled(state.session)
    if settings is None:
        return
    tenant_id = _tenant(state.session, settings)
    if not state.is_orm_statement or state.is_insert or _is_filtered(state, tenant_id):
        return
    state.statement = state.statement.options(
        with_loader_criteria(
            TenantScoped,
            lambda kind: kind.tenant_id == tenant_id,
            include_aliases=True,
        ),
        _Filtered(tenant_id),
    )


class _Filtered(UserDefinedOption):
    """Go with a filter from a load to the loads that follow from it, to say that it is there."""

    propagate_to_loaders = True


def _is_filtered(state: ORMExecuteState, tenant_id: str) -> bool:
    options = state.user_defined_options
    return any(isinstance(mark, _Filtered) and mark.payload == tenant_id for mark in options)


@event.listens_for(Session, "before_attach")
def _attach(session: Session, instance: object) -> None:
    """Stamp an object when it is added, so that it stays with the tenant it was added for."""
    settings = _walled(session) if isinstance(instance, TenantScoped) else None
    if settings is None or (TENANT not in session.info and settings.tenancy.ambient() is None):
        return
    scoped = cast("TenantScoped", instance)
    _check_owner(scoped, _loaded_owner(scoped), _tenant(session, settings))
    _guard(session)


@event.listens_for(Session, "before_flush")
def _check(session: Session, flush_context: Any, instances: Any) -> None:
    del flush_context, instances
    settings = _walled(session)
    if settings is None:
        return
    tenant_id = _tenant(session, settings)
    for instance in (*session.new, *session.dirty, *session.deleted):
        if isinstance(instance, TenantScoped):
            _check_owner(instance, instance.tenant_id, tenant_id)


def _check_owner(instance: TenantScoped, owner: str | None, tenant_id: str) -> None:
    """Give a new object without a tenant this one; refuse one that is, or was, another's."""
    state = inspect(instance)
    if owner is None and state.key is None:
        instance.tenant_id = tenant_id
    for known in (owner, *state.attrs.tenant_id.history.deleted):
        if known is not None and known != tenant_id:
            raise TenantMismatch(type(instance).__name__, known, tenant_id)


def _loaded_owner(instance: TenantScoped) -> str | None:
    """Return the tenant of an object if it is known without asking the database."""
    owner: str | None = instance.__dict__.get("tenant_id")
    return owner


def _guard(session: Session) -> None:
    """Refuse another tenant also where the session answers from memory."""
    if _SILENT_READS[0] in vars(session):
        return
    for name in _SILENT_READS:
        setattr(session, name, partial(_read_silently, weakref.ref(session), name))


def _read_silently(owner: weakref.ref[Session], name: str, *args: Any, **options: Any) -> Any:
    session = cast("Session", owner())
    settings = _walled(session)
    tenant_id = None if settings is None else _tenant(session, settings)
    found = getattr(type(session), name)(session, *args, **options)
    if tenant_id is not None and isinstance(found, TenantScoped):
        _check_owner(found, _loaded_owner(found), tenant_id)
    return found
