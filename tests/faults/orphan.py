"""Let a process end with the one that started it."""

import asyncio
import os
import signal
from multiprocessing import parent_process
from typing import Final

_LOOK_SECONDS: Final = 1.0


def end_with_parent() -> None:
    """Look once a second whether the parent is there, and kill this process when it is not."""
    parent = parent_process()
    if parent is None:
        return  # somebody runs it by hand
    if not parent.is_alive():
        os.kill(os.getpid(), signal.SIGKILL)
    asyncio.get_running_loop().call_later(_LOOK_SECONDS, end_with_parent)
