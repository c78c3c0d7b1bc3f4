"""JetStream's streams: find the one that keeps a topic, make a missing one."""

from collections.abc import Sequence
from typing import Final

from nats.aio.client import Client
from nats.js.api import StorageType, StreamConfig
from nats.js.errors import APIError, BadRequestError, NotFoundError

from pillarbox.bus.nats.outcomes import no_stream
from pillarbox.bus.outcome import Unavailable
from pillarbox.bus.partition import partitions_of

_SAFE_COPIES: Final = 3
_OVERLAP: Final = 10065
_NAME_IN_USE: Final = 10058


class Streams:
    """The streams behind one connection."""

    def __init__(
        self, client: Client, seconds: float, *, stream: str | None, partitions: int | None
    ) -> None:
        self._manager = client.jetstream(timeout=seconds)
        self._stream = stream
        self._partitions = partitions

    async def problem(self, topic: str) -> Unavailable | None:
        """Return why a topic cannot take messages, None if streams keep all its subjects."""
        for subject in partitions_of(topic, self._partitions):
            if (problem := await self._problem(topic, subject)) is not None:
                return problem
        return None

    async def create(self, topics: Sequence[str]) -> list[str]:
        """Make a stream for each topic that has none; return the names of the streams."""
        made = {}
        for topic in topics:
            subjects = partitions_of(topic, self._partitions)
            missing = [part for part in subjects if await self._problem(topic, part) is not None]
            if missing:
                made[await self._create(topic, missing)] = topic
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

    async def _problem(self, topic: str, subject: str) -> Unavailable | None:
        try:
            await self._manager.find_stream_name_by_subject(subject)
        except NotFoundError:
            return no_stream(topic)
        except APIError as error:
            return Unavailable(f"jetstream-{error.err_code}", str(error.description), topic)
        return None

    async def _create(self, topic: str, missing: Sequence[str]) -> str:
        """Make the stream of a topic's first word, or add the words to the named stream."""
        word = topic.partition(".")[0]
        subjects = [word, f"{word}.>"]
        try:
            return await self._add(self._stream or word, subjects)
        except BadRequestError as error:
            if error.err_code != _OVERLAP:
                raise
            # Another stream keeps some topics of this word: take this one alone.
            return await self._add(self._stream or topic.replace(".", "_"), missing)

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
