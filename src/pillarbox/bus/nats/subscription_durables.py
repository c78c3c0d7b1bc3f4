"""Durable consumers of JetStream: find their streams, make them, and say what is weak."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from nats.aio.client import Client
from nats.js.errors import APIError, NotFoundError

from pillarbox.bus.nats.streams import discards
from pillarbox.bus.nats.subscription_lane import Durable, Pending
from pillarbox.bus.partition import partitions_of
from pillarbox.bus.retention import short_retention
from pillarbox.errors import InvalidConfig

GROUP: Final = "pillarbox"
_API: Final = "$JS.API.CONSUMER"
_PINS_SINCE: Final = (2, 11)
_POLICY: Final = "pinned_client"
_NOT_NOW: Final = 503
_NO_CONSUMER: Final = 10014
_NO_STREAM: Final = 10059
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_NAME_LENGTH: Final = 80
_NANOSECONDS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms a member takes messages."""

    consumer: str
    ack_wait: timedelta
    pin_wait: timedelta
    most: int


def knows_pins(client: Client) -> bool:
    """Tell whether the server can keep a consumer to one member at a time."""
    version = client.connected_server_version
    return (version.major, version.minor) >= _PINS_SINCE


def durable_name(consumer: str, subject: str) -> str:
    """Name the durable of a consumer and a subject; the server allows few characters."""
    shown = _UNSAFE.sub("_", f"{consumer}-{subject}")[:_NAME_LENGTH]
    digest = hashlib.sha256(f"{consumer}\0{subject}".encode()).hexdigest()[:10]
    return f"{shown}-{digest}"


class Durables:
    """The durables of one consumer, through one connection."""

    def __init__(self, client: Client, seconds: float, terms: Terms) -> None:
        self._client = client
        self._seconds = seconds
        self._terms = terms
        self._manager = client.jetstream(timeout=seconds)

    async def ensure(self, topics: Sequence[str], partitions: int | None) -> list[Durable]:
        """Return a durable for each partition; make those that are missing."""
        found = []
        for topic in topics:
            for subject in partitions_of(topic, partitions):
                stream = await self._stream(topic, subject)
                name = durable_name(self._terms.consumer, subject)
                found.append(Durable(topic, subject, stream, name))
                await self.make(found[-1])
        return found

    async def make(self, durable: Durable) -> None:
        """Make a durable, or bring its terms up to date."""
        config: dict[str, object] = {
            "durable_name": durable.name,
            "name": durable.name,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": _nanoseconds(self._terms.ack_wait),
            "max_deliver": -1,
            "max_ack_pending": self._terms.most,
            "filter_subject": durable.subject,
            "replay_policy": "instant",
        }
        if knows_pins(self._client):
            config["priority_groups"] = [GROUP]
            config["priority_policy"] = _POLICY
            config["priority_timeout"] = _nanoseconds(self._terms.pin_wait)
        asked = {"stream_name": durable.stream, "config": config, "action": ""}
        path = f"CREATE.{durable.stream}.{durable.name}.{durable.subject}"
        said = await self._ask(path, asked)
        made = said.get("config", {})
        if said.get("error", {}).get("code") == _NOT_NOW:
            APIError.from_error(said["error"])  # raises: there is no leader, say
        if "error" in said or made.get("priority_policy") != config.get("priority_policy"):
            reason = said.get("error", {}).get("description", "it has other settings")
            raise InvalidConfig(
                "topics",
                f"have no consumer {durable.name} on stream {durable.stream}: {reason}",
                "mend the stream, or delete that consumer while nobody listens",
            )

    async def pending(self, durable: Durable) -> Pending | None:
        """Ask what the server waits for; None if it does not know the durable, or its stream."""
        said = await self._ask(f"INFO.{durable.stream}.{durable.name}", {})
        if "error" in said:
            if said["error"].get("err_code") in (_NO_CONSUMER, _NO_STREAM):
                return None
            APIError.from_error(said["error"])  # raises: a server without a leader, say
        delivered = int(said["delivered"]["consumer_seq"])
        return Pending(delivered, int(said["num_ack_pending"]), int(said["num_pending"]))

    async def unpin(self, durable: Durable) -> None:
        """Let another member be the active one at once."""
        await self._ask(f"UNPIN.{durable.stream}.{durable.name}", {"group": GROUP})

    async def survey(self, streams: Sequence[str]) -> tuple[list[str], timedelta | None]:
        """Say what a consumer could miss, and for how long a message can come again."""
        said: list[str] = []
        ages: list[timedelta | None] = []
        for name in streams:
            config = (await self._manager.stream_info(name)).config
            ages.append(timedelta(seconds=config.max_age) if config.max_age else None)
            said += short_retention(f"stream {name}", ages[-1], "max_age")
            if discards(config):
                said.append(
                    f"stream {name} discards old messages when it is full, read or not; "
                    "set its discard policy to new"
                )
        known = [age for age in ages if age is not None]
        return said, max(known) if len(known) == len(ages) else None

    async def _stream(self, topic: str, subject: str) -> str:
        try:
            return await self._manager.find_stream_name_by_subject(subject)
        except NotFoundError:
            raise InvalidConfig(
                "topics",
                f"has {topic!r}, but no stream keeps {subject}",
                "run `pillarbox bus apply`, or add the subject to a stream",
            ) from None

    async def _ask(self, path: str, asked: object) -> dict[str, Any]:
        body = json.dumps(asked).encode() if asked else b""
        answer = await self._client.request(f"{_API}.{path}", body, timeout=self._seconds)
        said: dict[str, Any] = json.loads(answer.data)
        return said


def _nanoseconds(span: timedelta) -> int:
    return round(span.total_seconds() * _NANOSECONDS)
