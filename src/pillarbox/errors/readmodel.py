"""Read models that cannot be built, or are not there yet."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from pillarbox.errors.root import PillarboxError

_SOURCES: Final[Mapping[str, str]] = {"log": "the outbox's log", "bus": "a subscription"}


class ReadModelError(PillarboxError):
    """A read model cannot be built, or is not as far as was asked."""

    code = "read-model"


class HistoryIncomplete(ReadModelError):
    """The history of a read model does not reach its first event, or the one that it goes on with."""

    code = "history-incomplete"

    def __init__(self, model: str, found: str, remedy: str) -> None:
        super().__init__(
            f"the history of read model {model!r} is not whole: {found}, and its rows would not be "
            f"the fold of all events; nothing was changed; {remedy}, or say "
            'history="kept" if what is kept is all there was'
        )
        self.model, self.found = model, found


class HistoryUndecided(ReadModelError):
    """Whether the history reaches as far as it must is not known while a transaction is open."""

    code = "history-undecided"

    def __init__(self, model: str, oldest: int | None) -> None:
        super().__init__(
            f"the history of read model {model!r} does not begin where it should, and a transaction is "
            "open that may still commit what is missing; nothing was changed; try again when it has "
            "ended, as a runner does by itself"
        )
        self.model, self.oldest = model, oldest


class ReadModelUnknown(ReadModelError):
    """No read model of this name has begun."""

    code = "read-model-unknown"

    def __init__(self, model: str) -> None:
        super().__init__(
            f"no read model {model!r} has begun in this database; check the name, or run it once"
        )
        self.model = model


class ReadModelSourceChanged(ReadModelError):
    """A read model is run from another source than the one that its rows, or a rebuild, come from.

    `found` is the source that the database knows, `wanted` that of the caller: "log" or "bus".
    `state` is "live", or "filling" where a rebuild from the other source is under way.
    """

    code = "read-model-source-changed"

    def __init__(self, model: str, state: str, found: str, wanted: str) -> None:
        what, remedy = "follows", "call rebuild() to build it from its new source"
        if state == "filling":
            what, remedy = "is being built again from", "let that rebuild end, or give it up"
        super().__init__(
            f"read model {model!r} {what} {_SOURCES[found]} and not {_SOURCES[wanted]}, from which "
            f"events that it has applied would be applied again; nothing was changed; {remedy}, or "
            "run it as before"
        )
        self.model, self.state, self.found, self.wanted = model, state, found, wanted


class ReadModelBehind(ReadModelError):
    """A read model did not reach an event within the time."""

    code = "read-model-behind"

    def __init__(self, model: str, event_id: str, waited: timedelta) -> None:
        super().__init__(
            f"read model {model!r} has not reached event {event_id} after "
            f"{waited.total_seconds():g} s; answer from the command's own data, or look at its lag"
        )
        self.model, self.event_id, self.waited = model, event_id, waited


class RebuildFailed(ReadModelError):
    """A read model was not built again: an event or its rows failed, its broker gave a part, another was first.

    `position` is the event's number in the log, None where it came from a broker. Without an event
    the reason says what else it was, and `remedy` what to do if it is not to call rebuild again.
    """

    code = "rebuild-failed"

    def __init__(
        self,
        model: str,
        event_id: str | None,
        position: int | None,
        reason: str,
        remedy: str | None = None,
    ) -> None:
        where = "" if position is None else f" at position {position}"
        what, mend = reason, ""
        if event_id is not None:
            what, mend = f"event {event_id}{where} failed with {reason}", "mend the method and "
        super().__init__(
            f"read model {model!r} could not be built again: {what}; the live table is untouched; "
            + (remedy or f"{mend}call rebuild again, it goes on from there")
        )
        self.model, self.event_id, self.position, self.reason = model, event_id, position, reason
        self.remedy = remedy
