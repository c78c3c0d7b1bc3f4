"""User and password for Kafka, asked for again whenever a connection may need them."""

import logging
from collections.abc import Callable
from typing import Any, Final

_log = logging.getLogger("pillarbox.bus.kafka")

Credentials = Callable[[], tuple[str, str]]
"""Return user and password; called often and from several threads, so it must be quick."""


# Until they can be read the broker refuses these; the client itself takes no empty ones.
_UNREAD: Final = ("unread", "unread")


class Login:
    """Give user and password to clients; without credentials the client's settings have them."""

    def __init__(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self._last = _UNREAD

    def settings(self) -> dict[str, str]:
        """Return the settings of a client that is made now."""
        if self._credentials is None:
            return {}
        user, password = self._ask(self._credentials)
        return {"sasl.username": user, "sasl.password": password}

    def renew(self, client: Any) -> None:
        """Tell a client what to say at its next connection."""
        if self._credentials is not None:
            client.set_sasl_credentials(*self._ask(self._credentials))

    def _ask(self, credentials: Credentials) -> tuple[str, str]:
        try:
            self._last = credentials()
        except Exception as error:  # noqa: BLE001 - the caller's function may raise anything
            # The former ones may still do; if not, the broker's answer says so.
            _log.warning("kafka_credentials_not_read", extra={"reason": type(error).__name__})
        return self._last
