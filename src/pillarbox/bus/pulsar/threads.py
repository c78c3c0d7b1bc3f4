"""Threads for calls of Pulsar's client that block."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple


class _Call(NamedTuple):
    answer: Future[Any]
    work: Callable[[], Any]


class Threads:
    """Run calls in a few threads, none of which keeps the process from ending.

    A broker that does not answer holds a thread for as long as the client waits, and the interpreter
    waits at its end for the threads of an executor.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._closed = False

    def run(self, work: Callable[..., Any], *arguments: object) -> asyncio.Future[Any]:
        """Run a call in the next thread that is free."""
        if self._closed:
            raise RuntimeError("closed")
        call = _Call(Future(), partial(work, *arguments))
        self._calls.put(call)
        if len(self._threads) < self._count:
            name = f"{self._name}-{len(self._threads)}"
            self._threads.append(Thread(target=_work, args=(self._calls,), name=name, daemon=True))
            self._threads[-1].start()
        return asyncio.wrap_future(call.answer)

    def close(self) -> None:
        """Cancel what has not begun; threads end when what they do has ended."""
        self._closed = True
        with suppress(Empty):
            while True:
                call = self._calls.get_nowait()
                if call is not None:
                    call.answer.cancel()
        for _ in self._threads:
            self._calls.put(None)

    def join(self) -> None:
        """Wait, in another thread, for the end of those that were closed."""
        for thread in self._threads:
            thread.join()


def _work(calls: SimpleQueue[_Call | None]) -> None:
    while call := calls.get():
        if call.answer.set_running_or_notify_cancel():
            _answer(call)
        del call  # what it returned is not held until the next one comes


def _answer(call: _Call) -> None:
    try:
        made = call.work()
    except BaseException as error:  # noqa: BLE001 - it belongs to who waits for the answer
        call.answer.set_exception(error)
    else:
        call.answer.set_result(made)
