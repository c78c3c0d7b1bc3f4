"""What capture needs to know: the service, its tenants, its routes and its bus's rules."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from pillarbox.clock import SYSTEM_CLOCK, Clock
from pillarbox.errors import InvalidConfig
from pillarbox.event.cloudevents import source_uri
from pillarbox.event.encoders import DEFAULT_ENCODERS, DEFAULT_LIMITS, Encoders, PayloadLimits
from pillarbox.event.ids import IdMaker, id_maker
from pillarbox.event.rules import PORTABLE, BusRules, check_identifier, check_key, rules_for
from pillarbox.outbox.routing import ContextTopics, RoutingPolicy
from pillarbox.tenancy import Tenancy

MAX_SOURCE: Final = 255  # what a consumer's inbox keeps


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
        if (length := len(source_uri(self.service))) > MAX_SOURCE:
            raise InvalidConfig(
                "service",
                f"has {length} characters as a URI > {MAX_SOURCE}",
                "choose a shorter name",
            )
        if self.schema is not None:
            check_identifier("schema", self.schema)

    @classmethod
    def chosen(cls, settings: "CaptureSettings | None", service: str | None) -> "CaptureSettings":
        """Take settings that are there, for another service if one is named, else the variables'.

        Tenancy, rules and schema stay: naming a service must not take a session past the wall.
        """
        if settings is None:
            return cls.from_env(service=service)
        return settings if service is None else replace(settings, service=service)

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
        found = _from_variables(
            service or env.get("PILLARBOX_SERVICE") or "default",
            bus or env.get("PILLARBOX_BUS_URL") or None,
            schema or env.get("PILLARBOX_SCHEMA") or None,
        )
        tenancy = tenancy or Tenancy.from_env(env)
        if routing is None and tenancy == _OFF and limits == DEFAULT_LIMITS:
            return found if encoders is DEFAULT_ENCODERS else replace(found, encoders=encoders)
        return replace(
            found,
            routing=routing or found.routing,
            tenancy=tenancy,
            limits=limits,
            encoders=encoders,
        )


_OFF: Final = Tenancy()


@lru_cache(maxsize=64)
def _from_variables(service: str, bus: str | None, schema: str | None) -> CaptureSettings:
    """Make the settings once: a unit of work without its own asks for them each time."""
    return CaptureSettings(service=service, rules=rules_for(bus), schema=schema)
