"""Tasks as they are written: functions by name, called with what came out of the table."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from pillarbox.consumer.context import Task
from pillarbox.consumer.handlers import hints_of, is_async
from pillarbox.consumer.models import converter
from pillarbox.event.rules import check_key

TaskFunction = Callable[..., Awaitable[None] | None]


def task_of(name: str, function: TaskFunction) -> Task:
    """Make a task of a function: its arguments are converted as its annotations say.

    A function that is no coroutine runs in a thread, since it may wait for somebody.
    """
    check_key("task", name)
    hints = hints_of(function)
    parameters = inspect.signature(function).parameters
    converts = {given: converter(hints[given]) for given in parameters if given in hints}
    waits = is_async(function)

    async def run(**arguments: Any) -> None:
        filled = {
            given: converts[given](value) if given in converts else value
            for given, value in arguments.items()
        }
        if waits:
            made: Any = function(**filled)
            await made
        else:
            await asyncio.to_thread(function, **filled)

    return Task(name, run)
