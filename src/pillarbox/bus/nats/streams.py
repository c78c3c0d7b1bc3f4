"""JetStream's streams: find the one that keeps a topic, make a missing one."""

from collections.abc import Sequence
from typing import Final

from nats.aio.client import Client
from nats.js.api import StorageType, StreamConfig
from nats.js.errors import APIError, BadRequestError, NotFoundError

from pillarbox.bus.nats.outcomes import no_stream
from pillarbox.bus.outcome import Unavailable

_SAFE_COPIES: Final = 3
_OVERLAP: Final = 10065
_NAME_IN_USE: Final = 10058


class Streams:
    """The streams behind one connection."""

    def __init__(self, client: Client, stream: str | None, seconds: float) -> None:
        self._manager = client.jetstream(timeout=seconds)
        self._stream = stream

    async def problem(self, topic: str) -> Unavailable | None:
        """Return why a topic cannot take messages, None if a stream keeps it."""
        try:
            await self._manager.find_stream_name_by_subject(topic)
        except NotFoundError:
            return no_stream(topic)
        except APIError as error:
            return Unavailable(f"jetstream-{error.err_code}", str(error.description), topic)
        return None

    async def create(self, topics: Sequence[str]) -> list[str]:
        """Make a stream for each topic that has none; return the names of the streams."""
        made = {}
        for topic in topics:
            if await self.problem(topic) is not None:
                made[await self._create(topic)] = topic
        return list(made)

    async def weaknesses(self) -> list[str]:
        """Say which streams would lose acknowledged messages with one machine."""
        said = []
        for info in await self._manager.streams_info():
            config = info.config
            if config.storage == StorageType.MEMORY:
                said.append(f"stream {config.name} is kept in memory: a restart loses its events")
            if (config.num_replicas or 1) < _SAFE_COPIES:
                said.append(
                    f"stream {config.name} has {config.num_replicas or 1} of {_SAFE_COPIES} "
                    "copies: a lost disk loses acknowledged events"
                )
        return said

    async def _create(self, topic: str) -> str:
        """Make the stream of a topic's first word, or add the words to the named stream."""
        word = topic.partition(".")[0]
        subjects = [word, f"{word}.>"]
        try:
            return await self._add(self._stream or word, subjects)
        except BadRequestError as error:
            if error.err_code != _OVERLAP:
                raise
            # Another stream keeps some topics of this word: take this one alone.
            return await self._add(self._stream or topic.replace(".", "_"), [topic])

    async def _add(self, name: str, subjects: Sequence[str]) -> str:
        config = StreamConfig(name=name, subjects=[*subjects], storage=StorageType.FILE)
        try:
            await self._manager.add_stream(config)
        except BadRequestError as error:
            if error.err_code != _NAME_IN_USE:
                raise
            found = (await self._manager.stream_info(name)).config
            found.subjects = list(dict.fromkeys((*(found.subjects or ()), *subjects)))
            await self._manager.update_stream(found)
        return name
