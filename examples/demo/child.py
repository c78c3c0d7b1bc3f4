"""Run a module as `python -m` does, and end with the process that started this one.

python -m examples.demo.child MODULE [ARGUMENTS]
"""

import os
import runpy
import signal
import sys
import threading
from typing import Final

_GRACE_SECONDS: Final = 35


def end_with_parent() -> None:
    """Stop gently when the pipe that the parent holds open is closed, and for certain later."""
    os.read(sys.stdin.fileno(), 1)
    signal.raise_signal(signal.SIGTERM)
    threading.Timer(_GRACE_SECONDS, os._exit, [1]).start()


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
