"""What capture needs to know: the service, its tenants, its routes and its bus's rules."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from pillarbox.clock import SYSTEM_CLOCK, Clock
from pillarbox.event.encoders import DEFAULT_ENCODERS, DEFAULT_LIMITS, Encoders, PayloadLimits
from pillarbox.event.ids import IdMaker, id_maker
from pillarbox.event.rules import PORTABLE, BusRules, check_identifier, check_key, rules_for
from pillarbox.outbox.routing import ContextTopics, RoutingPolicy
from pillarbox.tenancy import Tenancy


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """How events become rows; shared by every session of a service."""

    service: str = "default"
    routing: RoutingPolicy = field(default_factory=ContextTopics)
    rules: BusRules = PORTABLE
    tenancy: Tenancy = field(default_factory=Tenancy)
    schema: str | None = None
    limits: PayloadLimits = DEFAULT_LIMITS
    encoders: Encoders = DEFAULT_ENCODERS
    clock: Clock = SYSTEM_CLOCK
    new_id: IdMaker = field(default_factory=id_maker)

    def __post_init__(self) -> None:
        check_key("service", self.service)
        if self.schema is not None:
            check_identifier("schema", self.schema)

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        service: str | None = None,
        bus: str | None = None,
        routing: RoutingPolicy | None = None,
        tenancy: Tenancy | None = None,
        schema: str | None = None,
        limits: PayloadLimits = DEFAULT_LIMITS,
        encoders: Encoders = DEFAULT_ENCODERS,
    ) -> "CaptureSettings":
        """Read the `PILLARBOX_` variables; an argument wins over its variable."""
        env = os.environ if environ is None else environ
        return cls(
            service=service or env.get("PILLARBOX_SERVICE") or "default",
            routing=routing or ContextTopics(),
            rules=rules_for(bus or env.get("PILLARBOX_BUS_URL") or None),
            tenancy=tenancy or Tenancy.from_env(env),
            schema=schema or env.get("PILLARBOX_SCHEMA") or None,
            limits=limits,
            encoders=encoders,
        )
