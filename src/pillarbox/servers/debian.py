"""Install the Debian packages of the servers, without starting their services."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pillarbox.servers.errors import ServerUnavailable

_APT_SECONDS: Final = 900.0
_TAIL: Final = 800
_POLICY: Final = Path("/usr/sbin/policy-rc.d")


@dataclass(frozen=True, slots=True)
class Package:
    """A Debian package and what Homebrew calls the same thing."""

    name: str
    brew: str


def refuse_reason(package: Package) -> str | None:
    """Say why packages cannot be installed here; None when they can."""
    if shutil.which("apt-get") is None:
        return f"there is no apt-get here; install it yourself, e.g. `brew install {package.brew}`"
    if os.geteuid() != 0:
        return f"apt-get needs root; run `sudo apt-get install {package.name}`"
    return None


def update() -> None:
    """Fetch the package lists."""
    _apt("apt-get", "update", "-q")


def install(package: Package) -> None:
    """Install one package; its service is not started."""
    with _services_held_back():
        _apt(package.name, "install", "-q", "-y", "--no-install-recommends", package.name)


@contextmanager
def _services_held_back() -> Iterator[None]:
    # A packaged service would hold the usual ports and keep running after us.
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink(missing_ok=True)


def _apt(what: str, *arguments: str) -> None:
    try:
        done = subprocess.run(
            ["apt-get", *arguments],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_APT_SECONDS,
        )
    except subprocess.TimeoutExpired as late:
        problem = f"apt-get did not end within {_APT_SECONDS:.0f} s"
        raise ServerUnavailable(what, problem, "try again, or look for another apt-get") from late
    if done.returncode != 0:
        problem = f"apt-get failed: {done.stdout[-_TAIL:].strip()}"
        raise ServerUnavailable(what, problem, "see apt-get's words above")
