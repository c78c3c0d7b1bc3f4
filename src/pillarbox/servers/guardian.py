"""Own one server's processes and folder, and end both when the parent is gone.

Runs as a process of its own, by path and on the standard library alone, so that it starts in
milliseconds. The parent writes one JSON request per line and reads one JSON answer per line. When
the pipe closes or the parent dies, even by kill -9, the server ends and its folder is removed.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

Request = dict[str, Any]
Answer = dict[str, Any]

_LINUX: Final = sys.platform == "linux"
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_IPC_RMID: Final = 0
_POLL_SECONDS: Final = 0.01
_PARENT_CHECK_SECONDS: Final = 0.5
_REAP_SECONDS: Final = 10.0


def parents() -> dict[int, int]:
    """Map every live process of the machine to its parent."""
    if _LINUX:
        return dict(_proc_parents())
    listing = subprocess.run(
        ["/bin/ps", "-A", "-o", "pid=,ppid=,stat="], check=False, capture_output=True, text=True
    )
    rows = (line.split() for line in listing.stdout.splitlines())
    return {int(row[0]): int(row[1]) for row in rows if not row[2].startswith("Z")}


def descendants(root: int) -> list[int]:
    """List the live processes below a process, nearest first."""
    parent_of = parents()
    found, level = [], {root}
    while level:
        level = {pid for pid, parent in parent_of.items() if parent in level}
        found.extend(sorted(level))
    return found


def _proc_parents() -> Iterator[tuple[int, int]]:
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a Path per process costs more than the read
        if not entry.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError):
            state, parent = _fields(Path("/proc", entry))[:2]
            if state not in "ZX":
                yield int(entry), int(parent)


def _fields(folder: Path) -> list[str]:
    """Return what the kernel tells of a process or thread, from its state on."""
    # The name, in parentheses, may hold anything: fields are counted after it.
    return (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()


class Guardian:
    """Start, signal and end one server on behalf of the parent."""

    def __init__(self, folder: Path, *, keep: bool, end_signal: int, end_seconds: float) -> None:
        self.folder = folder
        self.keep = keep
        self.end_signal = end_signal
        self.end_seconds = end_seconds
        self.main: subprocess.Popen[bytes] | None = None
        # Shared memory outlives a kill -9 on Linux: what was seen mapped is removed at the end.
        self.shared: set[tuple[str, int]] = set()

    def answer(self, request: Request) -> Answer:
        """Do what one request asks."""
        match request["op"]:
            case "spawn":
                return self._spawn(request)
            case "status":
                return {"returncode": self._returncode()}
            case "ready":
                self._note_shared(self._tree())
                return {"shared": sorted(self.shared)}
            case "signal":
                return self._signal(request["signal"])
            case "stop":
                self._end(request["signal"], request["seconds"])
                return {"returncode": self._returncode()}
            case other:
                return {"error": f"has no request {other!r}"}

    def close(self) -> None:
        """End the server, remove its folder."""
        self._end(self.end_signal, self.end_seconds)
        for name, number in self.shared:
            remove_shared(name, number)
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _spawn(self, request: Request) -> Answer:
        with Path(request["log"]).open("ab") as log:
            try:
                self.main = subprocess.Popen(
                    request["argv"],
                    cwd=request["cwd"],
                    env=request["env"],
                    user=request["uid"],
                    group=request["gid"],
                    extra_groups=None if request["uid"] is None else [],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    # Safe: the guardian has one thread.
                    preexec_fn=_die_with_guardian if _LINUX else None,  # noqa: PLW1509
                )
            except (OSError, subprocess.SubprocessError) as failed:
                return {"error": f"could not be run: {failed}"}
        return {"pid": self.main.pid}

    def _returncode(self) -> int | None:
        return None if self.main is None else self.main.poll()

    def _end(self, first: int, seconds: float) -> None:
        if self.main is not None and self.main.poll() is None and first != signal.SIGKILL:
            self._signal_tree(signal.SIGCONT)
            self.main.send_signal(first)
            _wait(lambda: self._returncode() is not None, seconds)
        self._signal_tree(signal.SIGKILL)

    def _signal(self, number: int) -> Answer:
        reached = self._signal_tree(number)
        # A signal is taken by one thread, which tells the others: on a busy machine they go on for
        # dozens of milliseconds, in which a "frozen" server answers.
        if number == signal.SIGSTOP and not _wait(lambda: all(map(_is_stopped, reached))):
            self._signal_tree(signal.SIGCONT)  # nobody thaws what was never frozen
            return {"error": f"did not freeze within {_REAP_SECONDS:.0f} s"}
        return {}

    def _signal_tree(self, number: int) -> set[int]:
        # PostgreSQL's backends have sessions of their own, so a process group is not enough; the
        # tree is read again until it holds nobody new, because processes fork while we read.
        reached: set[int] = set()
        while fresh := [pid for pid in self._tree() if pid not in reached]:
            if number == signal.SIGKILL:
                self._note_shared(fresh)
            for pid in fresh:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            reached.update(fresh)
        if number == signal.SIGKILL:
            _wait(lambda: not self._left(reached))
        return reached

    def _note_shared(self, pids: list[int]) -> None:
        for pid in pids:
            self.shared.update(_mapped(pid))

    def _tree(self) -> list[int]:
        return descendants(os.getpid())

    def _left(self, killed: set[int]) -> list[int]:
        # A zombie counts as left: threads of a dying server hold its ports until it is reaped.
        self._reap()
        return [pid for pid in killed if _exists(pid)]

    def _reap(self) -> None:
        """Collect every child that ended; orphans of the server are our children as well."""
        if not _LINUX:
            self._returncode()  # there, init collects the orphans
            return
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, options)) is not None:
                if self.main is not None and ended.si_pid == self.main.pid:
                    self.main.poll()  # Popen must see the status itself
                else:
                    os.waitpid(ended.si_pid, os.WNOHANG)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_stopped(pid: int) -> bool:
    """Tell whether no thread of a process runs any more; one that is gone counts as stopped."""
    if not _LINUX:
        asked = ["/bin/ps", "-o", "stat=", "-p", str(pid)]
        listing = subprocess.run(asked, check=False, capture_output=True, text=True)
        return listing.stdout.strip()[:1] in {"", "T", "Z"}
    states = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                states.append(_fields(thread)[0])
    return all(state in "TtZX" for state in states)


def _die_with_guardian() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _adopt_orphans() -> None:
    # A daemon such as RabbitMQ's epmd becomes our child instead of init's, so we can end it.
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _mapped(pid: int) -> Iterator[tuple[str, int]]:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text("utf-8", "replace").splitlines():
            fields = line.split(maxsplit=5)
            name = fields[5] if len(fields) > 5 else ""  # noqa: PLR2004 - the sixth is the name
            if name.startswith(("/dev/shm/PostgreSQL.", "/SYSV")):  # noqa: S108 - read, not made
                yield name.split()[0], int(fields[4])


def remove_shared(name: str, number: int) -> None:
    """Give back a piece of shared memory that a killed server left."""
    if name.startswith("/SYSV"):
        ctypes.CDLL(None).shmctl(number, _IPC_RMID, None)
    else:
        Path(name).unlink(missing_ok=True)


def _wait(condition: Callable[[], bool], seconds: float = _REAP_SECONDS) -> bool:
    limit = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < limit:
        time.sleep(_POLL_SECONDS)
    return met


def _requests(parent: int) -> Iterator[Request]:
    """Yield requests until the pipe closes or the parent is another one."""
    buffered = b""
    while True:
        readable, _, _ = select.select([0], [], [], _PARENT_CHECK_SECONDS)
        # A fork of the parent may hold the pipe open: the parent's own life counts as well.
        if os.getppid() != parent:
            return
        if not readable:
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            return
        *lines, buffered = (buffered + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)


def _write(answer: Answer) -> None:
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(answer).encode() + b"\n")


def _made_folder(settings: Request) -> Path:
    if settings["folder"] is not None:
        folder = Path(settings["folder"])
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    else:
        folder = Path(tempfile.mkdtemp(prefix=settings["prefix"], dir=settings["within"]))
    if settings["uid"] is not None:
        os.chown(folder, settings["uid"], settings["gid"])
    return folder.resolve()


def main() -> None:
    """Serve the parent until it is gone, then leave nothing behind."""
    parent = os.getppid()
    for ignored in (signal.SIGINT, signal.SIGHUP):
        # Not SIG_IGN, which the server would inherit.
        signal.signal(ignored, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _adopt_orphans()
    settings = json.loads(sys.argv[1])
    try:
        folder = _made_folder(settings)
    except OSError as failed:
        _write({"error": str(failed)})
        return
    guardian = Guardian(
        folder,
        keep=settings["folder"] is not None,
        end_signal=settings["end_signal"],
        end_seconds=settings["end_seconds"],
    )
    try:
        _write({"folder": str(guardian.folder)})
        for request in _requests(parent):
            _write({"number": request["number"], **guardian.answer(request)})
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        guardian.close()


if __name__ == "__main__":
    main()
