"""Wake-ups: tell waiting projectors that something was committed. They carry no work."""

import asyncio
from contextlib import suppress
from typing import Final, Self
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Dialect, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

CHANNEL: Final = "pillarbox_outbox"


class Wakeup:
    """A signal shared by the writers and the projector of one engine in this process.

    `tell` may be called from any thread and never blocks. A signal that nobody waits for is kept,
    so that a waiter that comes a moment later does not sleep through it.
    """

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def tell(self) -> None:
        """Wake every waiter, at once or at its next wait."""
        for waiter, loop in tuple(self._waiters.items()):
            with suppress(RuntimeError):  # the waiter's loop is closed: nobody waits there
                loop.call_soon_threadsafe(waiter.set)

    def listen(self) -> "Listener":
        """Start listening; what is told from now on is not missed."""
        waiter = asyncio.Event()
        self._waiters[waiter] = asyncio.get_running_loop()
        return Listener(self, waiter)

    def forget(self, waiter: asyncio.Event) -> None:
        """Stop telling a waiter."""
        self._waiters.pop(waiter, None)


_wakeups: WeakKeyDictionary[Dialect, Wakeup] = WeakKeyDictionary()


class Listener:
    """One waiter; use it as a context manager."""

    def __init__(self, wakeup: Wakeup, waiter: asyncio.Event) -> None:
        self._wakeup, self._waiter = wakeup, waiter

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._wakeup.forget(self._waiter)

    async def wait(self) -> None:
        """Wait until told; several tellings since the last wait count as one."""
        await self._waiter.wait()
        self._waiter.clear()


def wakeup_of(bind: Engine | Connection | AsyncEngine) -> Wakeup:
    """Return the wake-up that belongs to an engine, made on first use.

    The dialect stands for the engine: copies of it with other execution options share it.
    """
    found = _wakeups.get(bind.dialect)
    return _wakeups.setdefault(bind.dialect, Wakeup()) if found is None else found
