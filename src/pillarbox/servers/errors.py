"""What can go wrong with a server that Pillarbox starts itself."""

from pathlib import Path

from pillarbox.errors import SetupError


class ServerUnavailable(SetupError):
    """A server cannot be run on this machine."""

    code = "server-unavailable"

    def __init__(self, server: str, problem: str, remedy: str) -> None:
        super().__init__(f"{server}: {problem}; {remedy}")
        self.server, self.problem, self.remedy = server, problem, remedy


class ServerFailed(SetupError):
    """A server was started and did not do what was asked of it."""

    code = "server-failed"

    def __init__(self, server: str, problem: str, logs: Path | None = None) -> None:
        kept = f"; its logs are kept in {logs}" if logs is not None else ""
        super().__init__(f"{server} {problem}{kept}")
        self.server, self.problem, self.logs = server, problem, logs
