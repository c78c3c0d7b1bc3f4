"""A small disk of its own, that can be full."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk in memory."""

    folder: Path

    def resize(self, megabytes: int) -> None:
        """Give it more room, or less."""
        _mount("-o", f"remount,size={megabytes}m", str(self.folder))

    def fill(self, *, leave: int = 0) -> None:
        """Lay a file in it that leaves so many megabytes."""
        free = os.statvfs(self.folder)
        size = free.f_bavail * free.f_frsize - leave * _MEGABYTE
        with self._ballast.open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, size)

    def clear(self) -> None:
        """Take the file away."""
        self._ballast.unlink()

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Disk]:
    """Mount a disk for the time of a test, which is skipped where nobody may."""
    folder.mkdir()
    try:
        _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a disk")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(("umount", "--lazy", str(folder)), check=True)


def _mount(*arguments: str) -> None:
    subprocess.run(("mount", *arguments), check=True, capture_output=True)
