"""Look at a namespace and make topics through Pulsar's admin interface; every call here blocks."""

import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

from pillarbox.bus.message_limit import small_limit
from pillarbox.errors import InvalidConfig
from pillarbox.event.rules import PULSAR

_SAFE_COPIES: Final = 2
_LARGEST: Final = PULSAR.message_max_bytes
_MADE: Final = 204
_EXISTS: Final = 409
_GONE: Final = 404
_FINE: Final = 200
_ELSEWHERE: Final = 307
_HOPS: Final = 3
_PREFIX: Final = "persistent://"
_EARLIEST: Final = '{"ledgerId": -1, "entryId": -1, "partitionIndex": -1}'


class AdminRefused(Exception):
    """The admin interface answered with a status that is no success."""


class Admin:
    """The admin interface of one cluster."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
            raise InvalidConfig("admin_url", "is no address", "write http://host:8080 or https://…")
        self._scheme, self._server = parts.scheme, f"{parts.scheme}://{parts.netloc}"
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def weaknesses(self, namespace: str, seconds: float, *, dedup: bool) -> list[str]:
        """Say what of a namespace would lose or repeat events."""
        settings = _Settings(self.read("/brokers/configuration/runtime", seconds) or {})
        where = f"/namespaces/{quote(namespace)}"
        if self._ask("GET", where, seconds)[0] == _GONE:
            remedy = f"mend the name, or run `pulsar-admin namespaces create {namespace}`"
            return [f"there is no namespace {namespace}: no event can be published; {remedy}"]
        persistence = self.read(f"{where}/persistence", seconds)
        retention = self.read(f"{where}/retention", seconds)
        removes = self.read(f"{where}/deduplication", seconds)
        said = [*settings.few_copies(namespace, persistence)]
        said += settings.no_retention(namespace, retention)
        said += settings.small_messages()
        if dedup:
            said += settings.no_removal(namespace, removes)
        return said

    def read(self, path: str, seconds: float) -> Any:
        """Return a setting; None when it is not set, or not to be seen with these rights."""
        status, answer = self._ask("GET", path, seconds)
        if status == _FINE and answer:
            return json.loads(answer)
        if status in {_FINE, _MADE, _GONE, 401, 403}:
            return None
        raise AdminRefused(f"{status}: {_reason(answer)}")

    def create(self, address: str, partitions: int | None, seconds: float) -> bool:
        """Make a topic; return whether it was missing."""
        path = "/persistent/" + quote(address.removeprefix(_PREFIX))
        if partitions is None:
            status, answer = self._ask("PUT", path, seconds)
        else:
            status, answer = self._ask("PUT", f"{path}/partitions", seconds, str(partitions))
        if status not in {_MADE, _EXISTS}:
            raise AdminRefused(f"{status}: {_reason(answer)}")
        return status == _MADE

    def subscribe(self, address: str, name: str, seconds: float) -> bool:
        """Make a subscription from the first event on; return whether it was missing."""
        path = f"/persistent/{quote(address.removeprefix(_PREFIX))}/subscription/{quote(name)}"
        status, answer = self._ask("PUT", path, seconds, _EARLIEST)
        if status not in {_MADE, _EXISTS}:
            raise AdminRefused(f"{status}: {_reason(answer)}")
        return status == _MADE

    def _ask(
        self, method: str, path: str, seconds: float, body: str | None = None
    ) -> tuple[int, bytes]:
        url = f"{self._server}/admin/v2{path}"
        for _ in range(_HOPS):
            status, answer, elsewhere = self._send(method, url, seconds, body)
            # Each topic belongs to one broker, to which the others send.
            if status != _ELSEWHERE or urlsplit(elsewhere).scheme != self._scheme:
                break
            url = elsewhere
        return status, answer

    def _send(
        self, method: str, url: str, seconds: float, body: str | None
    ) -> tuple[int, bytes, str]:
        # Not urllib, which would ask a proxy of the environment.
        make = (
            http.client.HTTPSConnection if self._scheme == "https" else http.client.HTTPConnection
        )
        parts = urlsplit(url)
        connection = make(parts.hostname or "", parts.port, timeout=seconds)
        try:
            headers = {**self._headers, "Content-Type": "application/json"}
            target = parts._replace(scheme="", netloc="").geturl()
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.getheader("Location") or ""
        finally:
            connection.close()


class _Settings:
    """The settings of a broker, which hold where a namespace has none of its own."""

    def __init__(self, broker: Mapping[str, str]) -> None:
        self._broker = broker

    def few_copies(self, namespace: str, own: Mapping[str, int] | None) -> Iterator[str]:
        """Say whether one lost disk loses acknowledged events."""
        default = self._broker.get("managedLedgerDefaultAckQuorum")
        found = own["bookkeeperAckQuorum"] if own else default
        if found is not None and int(found) < _SAFE_COPIES:
            yield (
                f"events in {namespace} are acknowledged when {found} bookie has them, and a lost "
                f"disk loses them; run `pulsar-admin namespaces set-persistence -e 3 -w 3 -a 2 "
                f"{namespace}`"
            )

    def no_retention(self, namespace: str, own: Mapping[str, int] | None) -> Iterator[str]:
        """Say whether events vanish that no subscription waits for."""
        minutes = self._broker.get("defaultRetentionTimeInMinutes", "0")
        if int(own["retentionTimeInMinutes"] if own else minutes) == 0:
            yield (
                f"{namespace} keeps no event that no subscription waits for: what is published "
                "before a consumer has subscribed is lost to it; run `pulsar-admin namespaces "
                f"set-retention -t 7d -s -1 {namespace}`"
            )

    def small_messages(self) -> list[str]:
        """Say whether events are recorded that the broker will refuse."""
        limit = self._broker.get("maxMessageSize")
        return [] if limit is None else small_limit("the broker", int(limit), _LARGEST)

    def no_removal(self, namespace: str, own: bool | None) -> Iterator[str]:
        """Say whether repeated events are stored again."""
        default = self._broker.get("brokerDeduplicationEnabled", "true") == "true"
        if not (default if own is None else own):
            yield (
                f"{namespace} does not remove duplicates, so dedup=True costs and gives nothing; "
                f"run `pulsar-admin namespaces set-deduplication --enable {namespace}`"
            )


def _reason(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["reason"])
    except (ValueError, KeyError, TypeError):
        return "no reason is given"
