"""What a bus answers for a message: four classes, which the projector treats differently."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Accepted:
    """The broker has stored the message and said so."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker will not take this message, whoever sends it: its size, a header, its schema.

    `certain` is False when the answer was given to several messages together, so that an innocent
    one may be among them; such messages are sent again one by one before anything is counted.
    """

    code: str
    reason: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The destination cannot take messages now: down, unauthorised, missing, full, read-only.

    Nothing of the message was stored. `topic` is None when the whole bus is concerned.
    """

    code: str
    reason: str
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """The answer did not come: the message may be stored or not, and is sent again."""

    code: str
    reason: str


PublishOutcome = Accepted | Refused | Unavailable | Unknown
ACCEPTED: Final = Accepted()
