"""What the brokers share: TLS, and who may come in."""

from dataclasses import dataclass, field
from pathlib import Path

from pillarbox.servers.errors import ServerFailed
from pillarbox.servers.server import Server
from pillarbox.servers.tls import TlsFiles


@dataclass(frozen=True, slots=True)
class Login:
    """The one user that a server lets in."""

    user: str
    password: str = field(repr=False)


class Broker(Server):
    """A broker: in plain text for everybody, or with TLS, a login, or both."""

    def __init__(
        self,
        *,
        folder: Path | None = None,
        port: int | None = None,
        tls: TlsFiles | None = None,
        login: Login | None = None,
    ) -> None:
        super().__init__(folder=folder, ports={} if port is None else {"client": port})
        self._tls = tls
        self._login = login

    def change_login(self, login: Login) -> None:
        """Let another user in instead, from the next start on."""
        if self._login is None:
            raise ServerFailed(self.name, "asks for no login")
        self._login = login
        self._prepare()
