"""What a process of the rig says of its steps; it survives a kill."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Trace:
    """A file with one line for each step, written through at once."""

    file: int
    process: str

    @classmethod
    @contextmanager
    def opened(cls, path: Path, process: str) -> Iterator["Trace"]:
        """Append to a file until the end of the block."""
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            yield cls(file, process)
        finally:
            os.close(file)

    def note(self, step: str, **said: object) -> None:
        """Write a line."""
        said = {"process": self.process, "at": round(time.time(), 4), "step": step, **said}
        line = json.dumps(said)
        os.write(self.file, f"{line}\n".encode())
