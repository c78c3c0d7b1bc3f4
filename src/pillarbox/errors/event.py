"""Events that cannot be delivered as they are."""

from pillarbox.errors.root import PillarboxError


class InvalidEvent(PillarboxError, ValueError):
    """Refuse an event at the call that records it; nothing was written."""

    code = "invalid-event"

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field} {problem}; {remedy}")
        self.field, self.problem, self.remedy = field, problem, remedy


class PayloadNotJson(InvalidEvent):
    """A payload holds a value that JSON cannot carry unchanged."""

    code = "payload-not-json"


class PayloadNotUnicode(InvalidEvent):
    """A payload holds text that UTF-8 cannot carry."""

    code = "payload-not-unicode"


class PayloadTooDeep(InvalidEvent):
    """A payload is nested deeper than the limit."""

    code = "payload-too-deep"


class PayloadTooLarge(InvalidEvent):
    """A payload with its headers is larger than the bus takes."""

    code = "payload-too-large"

    def __init__(self, size: int, limit: int, bus: str) -> None:
        super().__init__(
            "payload",
            f"with headers has {size:,} bytes > {limit:,} for {bus}",
            "store the content elsewhere and send a reference to it (claim check)",
        )
        self.size, self.limit, self.bus = size, limit, bus


class InvalidTopic(InvalidEvent):
    """A topic name is one that the bus in use refuses."""

    code = "invalid-topic"


class TopicUnknown(InvalidEvent):
    """Neither the event nor the call says which topic the event goes to."""

    code = "topic-unknown"


class InvalidKey(InvalidEvent):
    """A key or an identifier is empty, too long or holds control characters."""

    code = "invalid-key"


class InvalidHeader(InvalidEvent):
    """A header would not arrive unchanged at every broker."""

    code = "invalid-header"


class InvalidTime(InvalidEvent):
    """A date and time is naive or outside the range that every part can store."""

    code = "invalid-time"


class InvalidEventId(InvalidEvent):
    """An event id is not a UUID that the outbox table can hold."""

    code = "invalid-event-id"


class DuplicateEventId(InvalidEvent):
    """An event id stands in the outbox already, with other content."""

    code = "duplicate-event-id"

    def __init__(self, event_id: str, differing: str) -> None:
        super().__init__(
            "event_id",
            f"{event_id} is in the outbox already with another {differing}",
            "give every event an id of its own, or repeat the event unchanged",
        )
        self.event_id, self.differing = event_id, differing
