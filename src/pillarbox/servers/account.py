"""Choose the user that a server runs as."""

import os
import pwd
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pillarbox.servers.errors import ServerUnavailable

# PostgreSQL's own user first would let a test server read the machine's real databases.
_NAMES: Final = ("nobody", "daemon")


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine without rights."""

    name: str
    uid: int
    gid: int


def unprivileged_account(server: str) -> Account | None:
    """Return the user to run a server as that refuses root; None when this user will do."""
    if os.geteuid() != 0:
        return None
    for name in _NAMES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    users = " or ".join(_NAMES)
    raise ServerUnavailable(
        server, f"root may not run it and there is no user {users}", "run as another user"
    )


def temporary_root(account: Account | None) -> Path:
    """Return a folder for temporary files that the account can reach."""
    chosen = Path(tempfile.gettempdir())
    if account is None or reachable(chosen, account):
        return chosen
    return Path("/tmp")  # noqa: S108 - mkdtemp makes a private folder inside it


def reachable(path: Path, account: Account) -> bool:
    """Tell whether a user can go down to a file or folder and use it."""
    resolved = path.resolve()
    return all(_passable(place, account) for place in (resolved, *resolved.parents))


def _passable(place: Path, account: Account) -> bool:
    status = place.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def readable_copy(package: Path, into: Path) -> Path:
    """Copy a wheel's package where every user can read it; return the copy.

    The libraries of a wheel lie beside the package, in `<package>.libs`, and are found by relative
    path, so they are copied beside it again.
    """
    into.mkdir(mode=0o755, exist_ok=True)
    for source in (package, package.with_name(f"{package.name}.libs")):
        if source.is_dir():
            shutil.copytree(source, into / source.name, symlinks=True, dirs_exist_ok=True)
    for folder, _, files in os.walk(into):
        for path in (Path(folder), *(Path(folder, file) for file in files)):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o555 if path.stat().st_mode & 0o100 else 0o444))
    return into / package.name
