"""Inbound messages: what a broker had, what it is not, and by which rules it is read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from pillarbox.event.encoders import DEFAULT_LIMITS, PayloadLimits


class Incoming(NamedTuple):
    """A message as the broker had it; nothing of it is trusted yet.

    `headers` have their names on the wire. `key` is None where the broker keeps none: it may stand
    in a header then. `message_id` is the broker's own id, for producers that send no other.
    """

    topic: str
    key: str | None
    headers: Mapping[str, str]
    body: bytes | None
    content_type: str | None = None
    message_id: str | None = None


Flaw = Literal[
    "invalid-attribute",
    "invalid-field",
    "invalid-id",
    "invalid-key",
    "invalid-tenant",
    "missing-field",
    "no-id",
    "schema-version",
    "tenant-forged",
    "tenant-required",
    "too-deep",
    "too-large",
    "undecodable",
    "unknown-type",
    "wrong-content-type",
    "wrong-encoding",
]
"""Why a message is parked before any handler has seen it; the codes are stable."""


class Unreadable(NamedTuple):
    """Say why a message cannot be handled; the reason names fields and limits, never values."""

    code: Flaw
    reason: str


Identify = Callable[[Incoming], str | None]
"""Make an id for a message whose producer sends none; None when there is none to make."""

ProvenTenant = Callable[[Incoming], str | None]
"""Say which tenant a message's way proves (its topic, a signature); None when it proves none."""


@dataclass(frozen=True, slots=True)
class ReadingRules:
    """How strictly messages are read.

    With `tenant_required` a message must name its tenant. With `proven_tenant` a message that names
    another tenant than its way proves is forged. `strict` refuses JSON with a key that comes twice;
    otherwise the last one counts. `max_bytes` bounds the body, whatever the broker lets through.
    """

    tenant_required: bool = False
    proven_tenant: ProvenTenant | None = None
    strict: bool = True
    limits: PayloadLimits = DEFAULT_LIMITS
    max_bytes: int = 16_777_216


DEFAULT_RULES: Final = ReadingRules()
