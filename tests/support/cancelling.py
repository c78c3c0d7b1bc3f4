"""Cancel work at each of its awaits in turn."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

Cancel = Callable[[asyncio.Task[Any], asyncio.Future[Any] | None], None]


def on_falling_asleep(task: asyncio.Task[Any], waited_for: asyncio.Future[Any] | None) -> None:
    """Cancel what the task is about to wait for."""
    del waited_for
    task.cancel()


def on_waking_up(task: asyncio.Task[Any], waited_for: asyncio.Future[Any] | None) -> None:
    """Cancel when what the task waits for has come, before it can look at it."""
    if waited_for is None:
        task.cancel()
    else:
        waited_for.add_done_callback(lambda _: task.cancel())


@dataclass(slots=True)
class CancelledAt:
    """Drive a coroutine and cancel its task at certain suspensions, counted from 1."""

    work: Coroutine[Any, Any, Any]
    steps: frozenset[int]
    cancel: Cancel
    suspensions: int = 0

    def __await__(self) -> Generator[Any, Any, None]:
        inner = self.work.__await__()
        step: Callable[[], Any] = partial(inner.send, None)
        while True:
            try:
                waited_for = step()
            except StopIteration:
                return
            self.suspensions += 1
            if self.suspensions in self.steps:
                task = asyncio.current_task()
                assert task is not None
                self.cancel(task, waited_for)
            try:
                value = yield waited_for
            except BaseException as error:  # noqa: BLE001 - handed on to the coroutine
                step = partial(inner.throw, error)
            else:
                step = partial(inner.send, value)


@dataclass(slots=True)
class CancelledAnywhere:
    """Run a task and cancel it when it and all that it has started have waited so many times."""

    step: int
    suspensions: int = 0
    _task: asyncio.Task[Any] | None = None

    async def run(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Run to the end; tell whether the task was cancelled."""
        loop = asyncio.get_running_loop()
        loop.set_task_factory(self._make)
        try:
            self._task = loop.create_task(work)
            await asyncio.wait({self._task})
        finally:
            loop.set_task_factory(None)
            task, self._task = self._task, None  # its traceback would keep what it held alive
        assert task is not None
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
        return task.cancelled()

    def _make(
        self, loop: asyncio.AbstractEventLoop, work: Any, /, **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(self._counted(work), loop=loop, **options)
        task.add_done_callback(lambda _: work.close())  # it may not have begun
        return task

    async def _counted(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await _Counted(work, self._suspended)

    def _suspended(self) -> None:
        self.suspensions += 1
        if self.suspensions == self.step and self._task is not None:
            self._task.cancel()


@dataclass(slots=True)
class _Counted:
    work: Coroutine[Any, Any, Any]
    suspended: Callable[[], None]

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self.work.__await__()
        step: Callable[[], Any] = partial(inner.send, None)
        while True:
            try:
                waited_for = step()
            except StopIteration as end:
                return end.value
            self.suspended()
            try:
                value = yield waited_for
            except BaseException as error:  # noqa: BLE001 - handed on to the coroutine
                step = partial(inner.throw, error)
            else:
                step = partial(inner.send, value)


async def run(driven: CancelledAt) -> bool:
    """Run to the end; tell whether the coroutine was cancelled."""

    async def drive() -> None:
        await driven

    task = asyncio.create_task(drive())
    await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
    return task.cancelled()
