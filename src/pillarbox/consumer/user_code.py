"""Run code of the user so that whatever it does is its own failure."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class CancelledByItself(Exception):
    """Code of the user ended in a cancellation that nobody had asked for."""

    def __init__(self) -> None:
        super().__init__(
            "it raised CancelledError though nobody cancelled it: it may have awaited a task that "
            "was cancelled elsewhere"
        )


@contextmanager
def answering_for_itself() -> Iterator[None]:
    """Turn a cancellation from inside into a failure; let one from outside pass.

    The first would end whoever runs the code, in silence, as if a stop had been asked for.
    """
    task = asyncio.current_task()
    asked = 0 if task is None else task.cancelling()
    try:
        yield
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() > asked:
            raise
        raise CancelledByItself from error
