"""What a database may choose about its outbox, checked before any SQL is made."""

from dataclasses import dataclass, replace
from datetime import timedelta

from pillarbox.errors import InvalidConfig
from pillarbox.event.rules import check_identifier
from pillarbox.migrations.frozen import Choices
from pillarbox.schema.tables import DEFAULT_SHARDS

APPLICATION_ROLE = "pillarbox_app"
PROJECTOR_ROLE = "pillarbox_projector"
MAX_SHARDS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaOptions:
    """Choices for the tables; `None` means: as the database has it, else the default.

    >>> SchemaOptions(schema="shop", shards=16).choices("postgresql").shards
    16
    """

    schema: str | None = None
    shards: int | None = None
    partitioned: bool | None = None
    tenancy: bool = False
    application_role: str = APPLICATION_ROLE
    projector_role: str = PROJECTOR_ROLE
    partition_days: int = 1
    ahead: timedelta = timedelta(days=14)

    def __post_init__(self) -> None:
        if self.schema is not None:
            check_identifier("schema", self.schema)
        check_identifier("application_role", self.application_role)
        check_identifier("projector_role", self.projector_role)
        check_shards(self.shards)
        if self.partition_days < 1:
            problem = f"is {self.partition_days}"
            raise InvalidConfig("partition_days", problem, "use 1 or more days per partition")

    def choices(self, dialect: str) -> Choices:
        """Settle what is open by the defaults."""
        if self.partitioned and dialect != "postgresql":
            problem = f"is set, and {dialect} has no partitions"
            raise InvalidConfig("partitioned", problem, "leave it out, or use PostgreSQL")
        if self.schema and dialect != "postgresql":
            problem = f"is {self.schema}, and {dialect} has no schemas"
            raise InvalidConfig("schema", problem, "leave it out, or use PostgreSQL")
        return Choices(
            dialect=dialect,
            schema=self.schema,
            shards=self.shards or DEFAULT_SHARDS,
            partitioned=bool(self.partitioned),
        )

    def settled(self, *, shards: int, partitioned: bool) -> "SchemaOptions":
        """Take over what the database has; refuse to differ from it."""
        if self.shards not in (None, shards):
            problem = f"is {self.shards}, and this database was created with {shards}"
            remedy = "leave it out; the number of shards changes only with all projectors drained"
            raise InvalidConfig("shards", problem, remedy)
        if self.partitioned not in (None, partitioned):
            layout = "partitioned" if partitioned else "plain"
            problem = f"asks for another layout than this database has ({layout})"
            raise InvalidConfig("partitioned", problem, "leave it out; the layout is for life")
        return replace(self, shards=shards, partitioned=partitioned)


def check_shards(shards: int | None) -> None:
    """Refuse a shard count that the index expression cannot mask."""
    if shards is None or (1 <= shards <= MAX_SHARDS and shards & (shards - 1) == 0):
        return
    remedy = f"use a power of two from 1 to {MAX_SHARDS}"
    raise InvalidConfig("shards", f"is {shards}", remedy)
