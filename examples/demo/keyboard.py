"""Single keys from the terminal, while there is one."""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def keys(pressed: Callable[[str], None]) -> Iterator[bool]:
    """Call back for each key; yield whether there is a keyboard at all."""
    if not sys.stdin.isatty():
        yield False
        return
    place = sys.stdin.fileno()
    before = termios.tcgetattr(place)
    loop = asyncio.get_running_loop()
    tty.setcbreak(place)
    loop.add_reader(place, lambda: pressed(os.read(place, 1).decode("ascii", "ignore").lower()))
    try:
        yield True
    finally:
        loop.remove_reader(place)
        termios.tcsetattr(place, termios.TCSADRAIN, before)
