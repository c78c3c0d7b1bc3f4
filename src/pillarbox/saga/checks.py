"""What a definition must be: refused where it is written, naming the saga, the problem, the remedy."""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pillarbox.errors import InvalidConfig
from pillarbox.event.domain import event_type_of

if TYPE_CHECKING:
    from pillarbox.saga.definition import Step

# With the `saga-` before it, the name of a consumer.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,94}", re.ASCII)
_STEP_LENGTH: Final = 100
_MOST_TRIES: Final = 1_000
_MOST_STEPS: Final = 100
_LONGEST: Final = timedelta(days=3_650)
_OWN: Final = ("definition", "completed", "compensated")
_HOOKS: Final = {"completed": 3, "compensated": 4}
_TWO: Final = 2


def check_name(where: str, name: str | None) -> str:
    """Return the name of a saga, or raise."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        problem = "has no name" if name is None else "has a name that some broker refuses"
        remedy = 'pass name="place-order": 1 to 95 ASCII letters, digits, _ and -'
        raise InvalidConfig(where, problem, remedy)
    return name


def check_version(where: str, version: int) -> int:
    """Return the version of a definition, or raise."""
    if type(version) is not int or not 1 <= version < 2**31:
        raise InvalidConfig(where, f"has the version {version!r}", "pass a whole number from 1")
    return version


def check_start(where: str, start: type | None) -> type:
    """Return the class of the start event, or raise."""
    if not isinstance(start, type):
        problem = "does not say what starts it"
        raise InvalidConfig(where, problem, "pass starts_on=, the class of an event")
    return start


def check_topics(where: str, topics: Sequence[Any]) -> tuple[str, ...]:
    """Return topics, or raise."""
    if isinstance(topics, str) or not all(isinstance(topic, str) and topic for topic in topics):
        remedy = 'pass a list of names, as ["orders.order"]'
        raise InvalidConfig(where, "has topics that are no names", remedy)
    return tuple(dict.fromkeys(topics))


def kinds_of(field: str, kinds: type | tuple[type, ...] | None) -> tuple[type, ...]:
    """Return classes of replies as a tuple, or raise."""
    found = () if kinds is None else kinds if isinstance(kinds, tuple) else (kinds,)
    if not all(isinstance(kind, type) for kind in found) or (field == "ok" and not found):
        raise InvalidConfig(f"step {field}", "is no class of events", "pass the class of a reply")
    return found


@lru_cache(512)
def takes_replies(make: Callable[..., object]) -> bool:
    """Tell whether a function takes the replies beside the start event."""
    return _arguments(make) == _TWO


def check_step(where: str, each: "Step", start: type) -> None:
    """Refuse a step that cannot work."""
    where = f"{where}, step {each.name}"
    if each.name.startswith("_") or len(each.name) > _STEP_LENGTH or each.name in _OWN:
        raise InvalidConfig(where, "has a name that is not for steps", "choose another name")
    for field, make in (("send", each.send), ("undo", each.undo)):
        if make is not None:
            _check_maker(where, field, make)
    _check_times(where, each)
    if each.undone and each.undo is None:
        raise InvalidConfig(where, "has undone= and nothing that undoes it", "pass undo= as well")
    names = [event_type_of(kind) for kind in (*each.ok, *each.fail)]
    if twice := [name for name, number in Counter(names).items() if number > 1]:
        problem = f"has {twice[0]} as more than one reply, which cannot be told apart"
        raise InvalidConfig(where, problem, "give each reply an event type of its own")
    if event_type_of(start) in (*names, *(event_type_of(kind) for kind in each.undone)):
        problem = f"waits for {event_type_of(start)}, which starts the saga"
        raise InvalidConfig(where, problem, "reply with an event of another type")


def check_steps(where: str, steps: Sequence["Step"]) -> None:
    """Refuse a saga without steps, or with more than anyone can follow."""
    if not steps:
        raise InvalidConfig(where, "has no steps", "write at least one: reserve = step(…)")
    if len(steps) > _MOST_STEPS:
        problem = f"has {len(steps)} steps > {_MOST_STEPS}"
        raise InvalidConfig(where, problem, "let a step start a saga of its own")


def check_hooks(where: str, cls: type) -> None:
    """Refuse what cannot be called at the end of a saga."""
    for hook, arguments in _HOOKS.items():
        function: Any = getattr(cls, hook)
        wanted = (
            "(self, start, ctx, why)" if arguments > _HOOKS["completed"] else "(self, start, ctx)"
        )
        if not inspect.iscoroutinefunction(function) or _arguments(function) != arguments:
            remedy = f"write async def {hook}{wanted}"
            raise InvalidConfig(where, f"has a {hook} that cannot be called", remedy)


def _check_maker(where: str, field: str, make: Any) -> None:
    if not callable(make) or inspect.iscoroutinefunction(make):
        problem = f"has a {field}= that is no plain function"
        raise InvalidConfig(where, problem, "pass a function that returns an event")
    if _arguments(make) not in (1, _TWO):
        problem = f"has a {field}= with other arguments than the start event and the replies"
        raise InvalidConfig(
            where, problem, f"write {field}=lambda start: … or lambda start, replies: …"
        )


def _check_times(where: str, each: "Step") -> None:
    for field in ("timeout", "undo_timeout"):
        value = getattr(each, field)
        if value is None and field == "timeout":
            continue
        if not isinstance(value, timedelta) or not timedelta() < value <= _LONGEST:
            remedy = "pass a timedelta above 0, as timedelta(minutes=5)"
            raise InvalidConfig(where, f"has the {field} {value!r}", remedy)
    for field in ("retries", "undo_retries"):
        value = getattr(each, field)
        if type(value) is not int or not 0 <= value < _MOST_TRIES:
            remedy = f"pass a whole number from 0 to {_MOST_TRIES - 1}"
            raise InvalidConfig(where, f"has {field} {value!r}", remedy)
    if each.retries and each.timeout is None:
        raise InvalidConfig(where, "has retries and no timeout to wait for", "pass timeout=")


def _arguments(function: Callable[..., object]) -> int | None:
    """Count the arguments that a function needs by position."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(item.kind is item.KEYWORD_ONLY and item.default is item.empty for item in found):
        return None
    return sum(item.kind in by_place and item.default is item.empty for item in found)
