"""Let a process end with the one that started it."""

import asyncio
import os
import signal
from typing import Final

_LOOK_SECONDS: Final = 1.0


def end_with_parent(parent: int | None = None) -> None:
    """Look once a second whether the parent is there, and kill this process when it is not."""
    known = os.getppid() if parent is None else parent
    if os.getppid() != known:
        os.kill(os.getpid(), signal.SIGKILL)
    asyncio.get_running_loop().call_later(_LOOK_SECONDS, end_with_parent, known)
