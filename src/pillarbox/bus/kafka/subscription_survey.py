"""Look at what a consumer would miss or get again: how long topics keep their messages."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from pillarbox.bus.kafka.topics import Topics, named
from pillarbox.bus.retention import short_retention

_FOR_EVER: Final = -1


class Survey(NamedTuple):
    """What is weak, and for how long a message can come again; None is for ever."""

    weak: list[str]
    kept: timedelta | None


def survey(topics: Topics, names: Sequence[str], seconds: float) -> Survey:
    """Look at topics; every call blocks, and raises when nobody answers."""
    missing = [topic for topic in names if topics.is_missing(topic, seconds)]
    there = [topic for topic in names if topic not in missing]
    found = topics.configs(there, seconds)
    said = []
    for topic, config in found.items():
        said += short_retention(f"topic {topic}", _kept(config), "retention.ms")
        said += _compaction(topic, config)
    if missing:
        said.append(
            f"there is no topic {named(missing)}: nothing comes from it until it is made, "
            "by `pillarbox bus apply` or by its producer"
        )
    times = [_kept(found.get(topic, {})) for topic in there]
    known = [kept for kept in times if kept is not None]
    longest = max(known) if known and len(known) == len(names) else None
    return Survey(said, longest)


def _kept(config: Mapping[str, str]) -> timedelta | None:
    if "compact" in config.get("cleanup.policy", "compact"):
        return None
    milliseconds = int(config.get("retention.ms", _FOR_EVER))
    return None if milliseconds == _FOR_EVER else timedelta(milliseconds=milliseconds)


def _compaction(topic: str, config: Mapping[str, str]) -> list[str]:
    if "compact" not in config.get("cleanup.policy", ""):
        return []
    return [
        f"topic {topic} is compacted: a consumer that is behind gets only the last message of a key"
    ]
