"""JetStream's streams: find the one that keeps a topic, make a missing one."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from nats.aio.client import Client
from nats.js.api import DiscardPolicy, StorageType, StreamConfig
from nats.js.errors import APIError, BadRequestError, NotFoundError

from pillarbox.bus.message_limit import small_limit
from pillarbox.bus.nats.outcomes import no_stream
from pillarbox.bus.outcome import Unavailable
from pillarbox.bus.partition import partitions_of
from pillarbox.event.rules import NATS

_SAFE_COPIES: Final = 3
_OVERLAP: Final = 10065
_NAME_IN_USE: Final = 10058


class Streams:
    """The streams behind one connection."""

    def __init__(
        self, client: Client, seconds: float, *, stream: str | None, partitions: int | None
    ) -> None:
        self._client = client
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
        """Say which streams would lose acknowledged messages, and what is too large for them."""
        said = small_limit("the server", self._client.max_payload, NATS.message_max_bytes)
        for info in await self._manager.streams_info():
            said += _weaknesses(info.config)
        return said

    async def forgotten(self, topics: Sequence[str]) -> list[str]:
        """Say which streams of these topics have lost messages, of whatever topic."""
        subjects = [part for topic in topics for part in partitions_of(topic, self._partitions)]
        names: dict[str, None] = {}
        for subject in subjects:
            with suppress(NotFoundError):  # nothing was published to it
                names[await self._manager.find_stream_name_by_subject(subject)] = None
        said = []
        for name in names:
            state = (await self._manager.stream_info(name)).state
            if state.messages < state.last_seq:
                said.append(
                    f"stream {name} begins with message {state.first_seq:,} and holds "
                    f"{state.messages:,} of {state.last_seq:,}"
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


def discards(config: StreamConfig) -> bool:
    """Tell whether a stream that is full makes room by losing its oldest messages."""
    limited = (config.max_msgs or 0) > 0 or (config.max_bytes or 0) > 0
    return limited and config.discard != DiscardPolicy.NEW


def _weaknesses(config: StreamConfig) -> list[str]:
    said, copies = [], config.num_replicas or 1
    stream = f"stream {config.name}"
    if config.storage == StorageType.MEMORY:
        said.append(f"{stream} is kept in memory: a restart loses its events")
    if copies < _SAFE_COPIES:
        said.append(
            f"{stream} has {copies} of {_SAFE_COPIES} copies: a lost disk loses acknowledged events, "
            "and so does a crash of the machine, unless the server has `sync_interval: always`, which "
            "it does not show"
        )
    if discards(config):
        said.append(
            f"{stream} loses its oldest events when it is full, read or not; set its discard policy "
            "to new, and events wait instead"
        )
    if (config.max_msg_size or -1) > 0:
        said += small_limit(stream, config.max_msg_size or 0, NATS.message_max_bytes)
    return said
