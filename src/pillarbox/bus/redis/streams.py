"""The server behind the streams: make a missing stream, say what would lose events."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from pillarbox.bus.message_limit import small_limit
from pillarbox.bus.partition import partitions_of
from pillarbox.bus.redis.connection import reach
from pillarbox.event.rules import REDIS, check_topic

_GROUP: Final = "pillarbox-apply"
_LOSES: Final = "loses acknowledged events"
_UNSEEN: Final = (
    "CONFIG or INFO is not allowed for this user: whether acknowledged events survive a crash "
    "could not be seen"
)
_LARGEST: Final = "proto-max-bulk-len"
_SETTINGS: Final = (
    "appendonly",
    "appendfsync",
    "maxmemory-policy",
    "min-replicas-to-write",
    _LARGEST,
)


class Streams:
    """The streams behind one connection, which the client's own calls use."""

    def __init__(self, client: AbstractConnection, partitions: int | None) -> None:
        self._client: Any = client  # Its parts have no types.
        self._partitions = partitions

    @classmethod
    @asynccontextmanager
    async def reached(
        cls, make: Callable[[], AbstractConnection], partitions: int | None
    ) -> AsyncIterator[Self]:
        """Connect for a few questions; the caller sets the limit."""
        client: Any = make()
        try:
            await reach(client)
            yield cls(client, partitions)
        finally:
            await client.disconnect(nowait=True)

    async def create(self, topics: Sequence[str]) -> list[str]:
        """Make the streams that are missing; return their names."""
        made = []
        for topic in topics:
            for stream in partitions_of(check_topic(topic, REDIS), self._partitions):
                if await self._ask("TYPE", stream) == "none":
                    await self._create(stream)
                    made.append(stream)
        return made

    async def forgotten(self, topics: Sequence[str]) -> list[str]:
        """Say which streams of these topics were trimmed, or may have been."""
        said = []
        for topic in topics:
            for stream in partitions_of(check_topic(topic, REDIS), self._partitions):
                if await self._ask("TYPE", stream) != "none":
                    said += _of_entries(stream, await self._facts_of(stream))
        return said

    async def weaknesses(self, replicas: int) -> list[str]:
        """Say what would lose acknowledged messages, as far as this user may see it."""
        try:
            settings = await self._settings()
            facts = await self._facts()
        except ResponseError:
            return [_UNSEEN]
        limit = int(settings[_LARGEST] or REDIS.message_max_bytes)
        return [
            *_of_disk(settings),
            *_of_replicas(settings, facts, replicas),
            *small_limit("the server", limit, REDIS.message_max_bytes),
        ]

    async def _create(self, stream: str) -> None:
        # A group makes an empty stream; an entry, though deleted at once, might be read. Both steps
        # are one, so that several who apply at the same time do not meet each other's group.
        await self._ask("MULTI")
        await self._ask("XGROUP", "CREATE", stream, _GROUP, "$", "MKSTREAM")
        await self._ask("XGROUP", "DESTROY", stream, _GROUP)
        for answer in await self._ask("EXEC"):
            if isinstance(answer, ResponseError):
                raise answer

    async def _ask(self, *words: str) -> Any:
        await self._client.send_command(*words)
        return await self._client.read_response()

    async def _settings(self) -> Mapping[str, str]:
        found = {}
        for name in _SETTINGS:
            pair = await self._ask("CONFIG", "GET", name)
            found[name] = pair[1] if pair else ""
        return found

    async def _facts_of(self, stream: str) -> Mapping[bytes, Any]:
        await self._client.send_command("XINFO", "STREAM", stream)
        # It shows whole entries, and a body may be no text.
        found = await self._client.read_response(disable_decoding=True)
        return dict(zip(found[::2], found[1::2], strict=True))

    async def _facts(self) -> Mapping[str, str]:
        lines = (await self._ask("INFO", "replication")).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)


def _of_entries(stream: str, facts: Mapping[bytes, Any]) -> list[str]:
    oldest = facts[b"first-entry"]
    first = oldest[0].decode() if oldest else "no entry"
    added, kept = facts.get(b"entries-added"), facts[b"length"]
    if added is None:
        return [f"stream {stream} begins with {first}, and its server does not count what is gone"]
    if added > kept:
        return [f"stream {stream} begins with {first} and holds {kept:,} of {added:,}"]
    return []


def _of_disk(settings: Mapping[str, str]) -> list[str]:
    said = []
    if settings["appendonly"] != "yes":
        said.append(f"appendonly is {settings['appendonly']}: a restart {_LOSES}")
    elif settings["appendfsync"] != "always":
        said.append(
            f"appendfsync is {settings['appendfsync']}, not always: a crash of the machine {_LOSES}"
        )
    if settings["maxmemory-policy"].startswith("allkeys-"):
        said.append(
            f"maxmemory-policy is {settings['maxmemory-policy']}: a full memory evicts whole "
            "streams; noeviction makes events wait instead"
        )
    return said


def _of_replicas(settings: Mapping[str, str], facts: Mapping[str, str], wanted: int) -> list[str]:
    if facts.get("role") == "slave":
        return ["the server is a replica: it takes no messages"]
    connected = int(facts.get("connected_slaves", 0))
    if connected < wanted:
        return [f"{connected} of {wanted} replicas are connected: nothing is accepted"]
    if not connected:
        return [f"no replica is connected: a lost disk {_LOSES}"]
    if not wanted and settings["min-replicas-to-write"] == "0":
        return [f"neither replicas= nor min-replicas-to-write asks for copies: a failover {_LOSES}"]
    return []
