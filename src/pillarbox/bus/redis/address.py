"""Where a Redis server is, and how the client connects to it."""

import ssl
from collections.abc import Mapping
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection, SSLConnection, parse_url
from redis.asyncio.connection import Connection as PlainConnection

from pillarbox.bus.loopback import all_loopback, plaintext_weakness, unverified_weakness
from pillarbox.errors import InvalidConfig

_PORT: Final = 6379
_OPTIONS: Final = "see the arguments of redis.asyncio.Connection"
_SCHEMES: Final = ("redis", "rediss")
# The bus reads the answers itself, in the older protocol, in which the server says nothing unasked.
_FIXED: Final[Mapping[str, Any]] = {"protocol": 2, "decode_responses": True, "encoding": "utf-8"}


class Address:
    """One server, by its URL and by the options of the client."""

    def __init__(self, url: str, options: Mapping[str, Any], seconds: float) -> None:
        found = _parsed(url)
        self._make: type[AbstractConnection] = found.pop("connection_class", PlainConnection)
        self._settings: dict[str, Any] = {
            "socket_timeout": seconds,
            "socket_connect_timeout": seconds,
            "socket_keepalive": True,
            **({"ssl_check_hostname": True} if self._make is SSLConnection else {}),
            **found,
            **options,
            **_FIXED,
        }
        self.host: str = self._settings.setdefault("host", "localhost")
        scheme = _SCHEMES[self._make is SSLConnection]
        self.shown = f"{scheme}://{self.host}:{self._settings.get('port', _PORT)}"
        try:
            self.connection()
        except TypeError as error:
            raise InvalidConfig(
                "options", f"are not those of the client: {error}", _OPTIONS
            ) from error

    def connection(self) -> AbstractConnection:
        """Make a connection that is not open yet."""
        return self._make(**self._settings)

    def weaknesses(self) -> list[str]:
        """Say whether others can read along, or pass for the server."""
        if self._make is not SSLConnection:
            here = all_loopback([self.host])
            return plaintext_weakness(self.shown, "use rediss://", here=here)
        required = self._settings.get("ssl_cert_reqs", "required") in {
            "required",
            ssl.CERT_REQUIRED,
        }
        if required and self._settings["ssl_check_hostname"]:
            return []
        return unverified_weakness(self.shown)


def _parsed(url: str) -> dict[str, Any]:
    if url.partition("://")[0] not in _SCHEMES:
        raise InvalidConfig("url", "is no address of Redis", "write redis://host:port/0")
    try:
        return dict(parse_url(url))
    except ValueError:
        # Its words are not passed on, since they may hold a part of the password.
        raise InvalidConfig(
            "url", "cannot be read", "write redis://user:password@host:port/0, percent-encoded"
        ) from None
