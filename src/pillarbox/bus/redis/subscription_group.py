"""The commands of one consumer group, as one of its members."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from redis.exceptions import ResponseError

from pillarbox.bus.redis.subscription_line import Line
from pillarbox.bus.redis.subscription_scripts import FORGET_MEMBERS, SET_IDLE
from pillarbox.errors import InvalidConfig

START: Final = "0-0"
BLOCK_MILLISECONDS: Final = 1_000
_EXISTS: Final = "BUSYGROUP"
_NO_STREAM: Final = "requires the key to exist"
_FORGET_AFTER: Final = 3_600_000
_NO_GROUP: Final = "NOGROUP"


def is_missing(error: Exception) -> bool:
    """Tell whether a group is gone: its stream was deleted, or the server lost its memory."""
    return isinstance(error, ResponseError) and _NO_GROUP in str(error)


class Group:
    """Speak to a group over two lines: one may wait for entries, the other never does."""

    def __init__(self, name: str, member: str, reading: Line, asking: Line) -> None:
        self.name = name
        self.member = member
        self._reading = reading
        self._asking = asking

    async def create(self, stream: str, *, make: bool) -> None:
        """Make the group, from the first entry on, and with `make` its stream."""
        words = ("XGROUP", "CREATE", stream, self.name, START, *(("MKSTREAM",) if make else ()))
        try:
            await self._asking.ask(*words)
        except ResponseError as error:
            if _NO_STREAM in str(error):
                remedy = "run `pillarbox bus apply`, or mend the topic's name"
                raise InvalidConfig("topics", f"has no stream {stream}", remedy) from error
            if not str(error).startswith(_EXISTS):
                raise

    async def read(self, streams: Sequence[str], count: int) -> list[tuple[str, Sequence[Any]]]:
        """Wait for entries that no member has had; return them by stream."""
        news = [">"] * len(streams)
        found = await self._reading.ask(
            "XREADGROUP", "GROUP", self.name, self.member, "COUNT", count,
            "BLOCK", BLOCK_MILLISECONDS, "STREAMS", *streams, *news,
        )  # fmt: skip
        return [(stream.decode(), entries) for stream, entries in found or ()]

    async def wait(self, after: Mapping[str, str]) -> None:
        """Wait until one of the streams has an entry after the given one, or a second has passed."""
        options = ("COUNT", 1, "BLOCK", BLOCK_MILLISECONDS)
        await self._reading.ask("XREAD", *options, "STREAMS", *after, *after.values())

    async def claim(
        self, stream: str, idle: int, start: str, count: int
    ) -> tuple[str, Sequence[Any]]:
        """Take over entries that nobody has touched for long; return where to go on, and them."""
        answer = await self._reading.ask(
            "XAUTOCLAIM", stream, self.name, self.member, idle, start, "COUNT", count
        )
        return answer[0].decode(), answer[1]

    async def acknowledge(self, stream: str, entries: Sequence[str]) -> None:
        """Take entries off the group's list."""
        await self._asking.ask("XACK", stream, self.name, *entries)

    async def set_idle(self, stream: str, entries: Sequence[str], idle: int) -> None:
        """Say how long ago we have touched entries that are ours."""
        if entries:
            await self.run(SET_IDLE, [stream], self.name, self.member, idle, *entries)

    async def forget_members(self, stream: str, leaving: str = "") -> None:
        """Take members off the list that hold nothing and are gone, or leave."""
        await self.run(FORGET_MEMBERS, [stream], self.name, leaving, _FORGET_AFTER)

    async def acquire(self, lease: str, life: int) -> bool:
        """Take a lease if nobody has it, for so many milliseconds."""
        return await self._asking.ask("SET", lease, self.member, "NX", "PX", life) is not None

    async def resign(self, members: str) -> None:
        """Take ourselves off a list of members."""
        await self._asking.ask("ZREM", members, self.member)

    async def last_delivered(self, stream: str) -> str:
        """Return the last entry that any member has had."""
        return _text((await self._facts(stream))[b"last-delivered-id"])

    async def lag(self, stream: str) -> int | None:
        """Return how many entries no member has had, if the server knows."""
        lag = (await self._facts(stream)).get(b"lag")
        return None if lag is None else int(lag)

    async def is_at_end(self, stream: str) -> bool:
        """Tell whether members have had every entry, and acknowledged what they had."""
        facts = await self._facts(stream)
        return facts.get(b"lag") == 0 and facts[b"pending"] == 0

    async def run(self, script: str, keys: Sequence[str], *words: str | int) -> Any:
        """Run a script."""
        return await self._asking.ask("EVAL", script, len(keys), *keys, *words)

    async def _facts(self, stream: str) -> Mapping[bytes, Any]:
        for found in await self._asking.ask("XINFO", "GROUPS", stream):
            facts = dict(zip(found[::2], found[1::2], strict=True))
            if _text(facts[b"name"]) == self.name:
                return facts
        raise ResponseError(f"{_NO_GROUP} {stream} has no group {self.name}")


def _text(value: bytes) -> str:
    return value.decode()
