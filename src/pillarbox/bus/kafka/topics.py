"""Look at a Kafka cluster's topics and make missing ones; every call here blocks."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import admin as untyped_admin

from pillarbox.bus.kafka.login import Login
from pillarbox.bus.kafka.outcomes import outcome_of
from pillarbox.bus.message_limit import small_limit
from pillarbox.bus.outcome import Unavailable
from pillarbox.event.rules import KAFKA

_admin: Final[Any] = untyped_admin  # its types name neither NewTopic nor ConfigResource

_SAFE_COPIES: Final = 3
_SAFE_IN_SYNC: Final = 2
_SHOWN_SOON: Final = 0.01
_LOOKED_AT: Final = 200
_NAMED: Final = 5
_MISSING: Final = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC")
_AT_ONCE: Final = 0
_NOBODY: Final = ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN")
_TELLING: Final = ("_SSL", "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED")
_SOON: Final = "LEADER_NOT_AVAILABLE"


class _Complaints:
    """What the client says of its connections.

    It knows nothing of `Topics`, since a client that holds whoever holds it is never freed, and its
    connections stand on.
    """

    def __init__(self) -> None:
        self.last: KafkaError | None = None

    def hear(self, error: KafkaError) -> None:
        """Keep an error that tells more than that nobody answers."""
        if error.name() in _TELLING:
            self.last = error


class Topics:
    """The topics of one cluster, through a client of their own.

    `partitions` tells how many each topic has that was found to be in order.
    """

    def __init__(self, settings: Mapping[str, object], partitions: int, login: Login) -> None:
        self._complaints = _Complaints()
        heard = {"error_cb": self._complaints.hear}
        self._client: Any = _admin.AdminClient({**settings, **login.settings(), **heard})
        self._partitions = partitions
        self._login = login
        self.partitions: dict[str, int] = {}

    def why(self, error: KafkaException) -> KafkaError:
        """Return the reason of a failure: when nobody answers, that of the connection if known."""
        said: KafkaError = error.args[0]
        self._client.poll(_AT_ONCE)
        last = self._complaints.last
        return last if last and said.name() in _NOBODY else said

    @property
    def _admin(self) -> Any:
        self._login.renew(self._client)
        return self._client

    def _listed(self, seconds: float, topic: str | None = None) -> Any:
        found = self._admin.list_topics(topic, seconds)
        self._complaints.last = None
        return found

    def problem(self, topic: str, seconds: float) -> Unavailable | None:
        """Return why a topic cannot take messages, None if it can; raise when nobody answers."""
        found = self._listed(seconds, topic).topics[topic]
        error: KafkaError | None = found.error
        if error is None or error.name() == _SOON:
            self.partitions[topic] = len(found.partitions)
            return None
        outcome = outcome_of(error, topic, alone=True)
        if isinstance(outcome, Unavailable):
            return outcome
        return Unavailable(error.name(), error.str(), topic)

    def is_missing(self, topic: str, seconds: float) -> bool:
        """Tell whether the cluster does not know a topic; raise when nobody answers."""
        error: KafkaError | None = self._listed(seconds, topic).topics[topic].error
        return error is not None and error.name() in _MISSING

    def create(self, topics: Sequence[str], seconds: float) -> list[str]:
        """Make topics that are missing, with as many copies as the cluster can hold, up to three."""
        brokers = len(self._listed(seconds).brokers)
        wanted = [
            _admin.NewTopic(topic, self._partitions, min(_SAFE_COPIES, brokers))
            for topic in topics
            if self.is_missing(topic, seconds)
        ]
        if not wanted:
            return []
        answers = self._admin.create_topics(wanted, operation_timeout=seconds)
        made = [topic for topic, answer in answers.items() if _made(answer, seconds)]
        # A topic is shown a moment after it was made; until then it would look missing.
        limit = time.monotonic() + seconds
        while any(self.is_missing(topic, seconds) for topic in answers):
            if time.monotonic() > limit:
                break
            time.sleep(_SHOWN_SOON)
        return made

    def weaknesses(self, seconds: float) -> list[str]:
        """Say which topics would lose acknowledged messages with one machine."""
        known = self._listed(seconds).topics
        shown = [topic for topic in sorted(known) if not topic.startswith("__")][:_LOOKED_AT]
        if not shown:
            return []
        copies = {t: min(map(_copies, known[t].partitions.values()), default=0) for t in shown}
        configs = self.configs(shown, seconds)
        in_sync = _numbers(configs, "min.insync.replicas")
        few = [topic for topic in shown if copies[topic] < _SAFE_COPIES]
        lax = [topic for topic in shown if in_sync.get(topic, _SAFE_IN_SYNC) < _SAFE_IN_SYNC]
        said = []
        if few:
            said.append(
                f"fewer than {_SAFE_COPIES} copies are kept of {named(few)}: "
                "lost disks lose acknowledged events; raise the replication factor"
            )
        if lax:
            said.append(
                f"min.insync.replicas is below {_SAFE_IN_SYNC} for {named(lax)}: "
                "an event is acknowledged when one broker has it; raise it"
            )
        for topic, limit in _numbers(configs, "max.message.bytes").items():
            said += small_limit(f"topic {topic}", limit, KAFKA.message_max_bytes)
        return said

    def forgotten(self, topics: Sequence[str], seconds: float) -> list[str]:
        """Say where the first messages of topics are gone: deleted, or replaced by later ones."""
        policies = {
            topic: config.get("cleanup.policy")
            for topic, config in self.configs(topics, seconds).items()
        }
        said = [found for topic in topics for found in _compaction(topic, policies.get(topic))]
        known = {topic: self._listed(seconds, topic).topics[topic].partitions for topic in topics}
        places = [TopicPartition(topic, number) for topic in topics for number in known[topic]]
        asked = dict.fromkeys(places, _admin.OffsetSpec.earliest())
        answers = self._admin.list_offsets(asked, request_timeout=seconds) if asked else {}
        for place, answer in answers.items():
            if oldest := _answer(answer, seconds).offset:
                said.append(f"{place.topic}[{place.partition}] begins at offset {oldest:,}")
        return said

    def configs(self, topics: Sequence[str], seconds: float) -> dict[str, dict[str, str]]:
        """Return the settings of topics; not everybody may read them, and those are left out."""
        asked = [_admin.ConfigResource(_admin.ResourceType.TOPIC, topic) for topic in topics]
        found = {}
        answers = self._admin.describe_configs(asked, request_timeout=seconds) if asked else {}
        for resource, answer in answers.items():
            try:
                settings = _answer(answer, seconds)
            except KafkaException:
                continue  # What cannot be read is not judged.
            found[resource.name] = {name: entry.value for name, entry in settings.items()}
        return found


def _compaction(topic: str, policy: str | None) -> list[str]:
    if policy is None:
        return [f"whether topic {topic} is compacted cannot be seen without DescribeConfigs"]
    return [f"topic {topic} is compacted: it keeps the last of each key"] * ("compact" in policy)


def _numbers(configs: Mapping[str, Mapping[str, str]], name: str) -> dict[str, int]:
    return {topic: int(config[name]) for topic, config in configs.items() if name in config}


def _made(answer: Any, seconds: float) -> bool:
    try:
        _answer(answer, seconds)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def _answer(coming: Any, seconds: float) -> Any:
    """Wait for an answer; one that is late fails as the client's own calls do."""
    try:
        return coming.result(seconds)
    except TimeoutError as error:
        late = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - the client's public code
        raise KafkaException(late) from error


def _copies(partition: Any) -> int:
    return len(partition.replicas)


def named(topics: Sequence[str]) -> str:
    """Name a few topics and count the others."""
    more = len(topics) - _NAMED
    return ", ".join(topics[:_NAMED]) + (f" and {more} more" if more > 0 else "")
