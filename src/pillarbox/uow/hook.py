"""One call makes any sessionmaker collect events."""

from typing import Any

from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import sessionmaker

from pillarbox.outbox.capture import SETTINGS
from pillarbox.outbox.settings import CaptureSettings


def collect_events(
    factory: sessionmaker[Any] | async_sessionmaker[Any],
    *,
    service: str | None = None,
    settings: CaptureSettings | None = None,
) -> None:
    """Have the sessions of a sessionmaker, sync or async, record their aggregates' events.

        factory = async_sessionmaker(engine)
        collect_events(factory, service="orders")

    Aggregates that are added to or loaded by such a session are watched by themselves; a plain
    `await session.commit()` then commits their events with them.
    """
    settings = settings or CaptureSettings.from_env(service=service)
    info = {**(factory.kw.get("info") or {}), SETTINGS: settings}
    factory.configure(info=info)
