"""Bind captures to SQLAlchemy's session events.

The listeners stand on `Session` itself, so that any session a user has made can record events;
for a session without a capture each costs one look into a dictionary.
"""

from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import QueryContext, Session, SessionTransaction

from pillarbox.event.aggregate import AggregateRoot
from pillarbox.outbox.capture import capture_of


@event.listens_for(Session, "after_transaction_create")
def _began(session: Session, transaction: SessionTransaction) -> None:
    capture = capture_of(session)
    if capture is not None and (transaction.nested or transaction.parent is None):
        capture.began(transaction)


@event.listens_for(Session, "before_flush")
def _about_to_flush(session: Session, flush_context: Any, instances: Any) -> None:
    del flush_context, instances
    capture = capture_of(session)
    if capture is not None:
        capture.about_to_flush()


@event.listens_for(Session, "before_commit")
def _about_to_commit(session: Session) -> None:
    capture = capture_of(session)
    if capture is not None and not session.in_nested_transaction():
        capture.write()


@event.listens_for(Session, "after_commit")
def _committed(session: Session) -> None:
    capture = capture_of(session)
    if capture is None:
        return
    savepoint = session.get_nested_transaction()
    if savepoint is None:
        capture.committed()
    else:
        capture.released(savepoint)


@event.listens_for(Session, "after_soft_rollback")
def _rolled_back(session: Session, previous_transaction: SessionTransaction) -> None:
    capture = capture_of(session)
    if capture is not None:
        capture.rolled_back(previous_transaction)


@event.listens_for(Session, "after_transaction_end")
def _ended(session: Session, transaction: SessionTransaction) -> None:
    capture = capture_of(session)
    if capture is not None:
        capture.ended(transaction)


@event.listens_for(Session, "after_attach")
def _attached(session: Session, instance: object) -> None:
    if isinstance(instance, AggregateRoot):
        capture = capture_of(session)
        if capture is not None:
            capture.watch(instance)


@event.listens_for(AggregateRoot, "load", propagate=True)
def _loaded(instance: AggregateRoot, context: QueryContext) -> None:
    capture = capture_of(context.session)
    if capture is not None:
        capture.watch(instance)
