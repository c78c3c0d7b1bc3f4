"""Checks at the start of a process: refuse what would lose or leak events, warn of the rest."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, text

from pillarbox.clock import SYSTEM_CLOCK
from pillarbox.errors import (
    GrantsMissing,
    InvalidConfig,
    PartitionsMissing,
    RowSecurityMissing,
    SchemaMissing,
    SchemaOutdated,
    SetupError,
    UnsafeRole,
)
from pillarbox.migrations.frozen import qualifier
from pillarbox.schema.catalog import Catalog, Settings, locate, read_catalog, read_settings
from pillarbox.schema.drift import differing_settings, missing_walls
from pillarbox.schema.options import SchemaOptions
from pillarbox.schema.partitions import (
    Partition,
    covered_until,
    existing_partitions,
    running_out,
)
from pillarbox.schema.tables import SCHEMA_VERSION

_MAY_READ = text("SELECT current_user, has_table_privilege(:table, 'SELECT')")
_ROLE = text(
    "SELECT current_user, "
    "(SELECT bool_or(m.rolsuper) FROM pg_roles m WHERE pg_has_role(m.oid, 'MEMBER')), "
    "(SELECT bool_or(m.rolbypassrls) FROM pg_roles m WHERE pg_has_role(m.oid, 'MEMBER')), "
    "pg_has_role(c.relowner, 'MEMBER'), EXISTS (SELECT FROM pg_policy p, unnest(p.polroles) role "
    "WHERE p.polrelid = c.oid AND role <> 0 AND pg_get_expr(p.polqual, c.oid) = 'true' "
    "AND pg_has_role(role, 'USAGE')) "
    "FROM pg_class c WHERE c.oid = to_regclass(:table)"
)


def start_up_check(
    connection: Connection,
    *,
    tenancy: bool,
    allow_unsafe_role: bool,
    schema: str | None = None,
    shards: int | None = None,
    now: datetime | None = None,
) -> list[str]:
    """Refuse a database that this process cannot work with; return warnings for the log."""
    namespace = locate(connection, schema)
    if namespace is None:
        raise SchemaMissing(f"schema {schema}" if schema else "the database")
    catalog = read_catalog(connection, namespace)
    settings = _read(connection, catalog, namespace)
    refuse_other_settings(settings, SchemaOptions(schema=schema, shards=shards))
    if connection.dialect.name != "postgresql":
        return []
    warnings = []
    if settings.layout == "partitioned":
        partitions = existing_partitions(connection, namespace)
        warnings += warn_of_partitions(partitions, now or SYSTEM_CLOCK.now())
    dangers: list[SetupError] = [*_unsafe_role(connection, namespace)]
    if tenancy:
        dangers += unguarded(catalog)
    if tenancy and dangers and not allow_unsafe_role:
        raise dangers[0]
    return warnings + [str(danger) for danger in dangers]


def refuse_other_settings(settings: Settings, options: SchemaOptions) -> None:
    """Refuse a process whose settings would put rows into other shards."""
    if settings.schema_version != SCHEMA_VERSION:
        raise SchemaOutdated(settings.schema_version, SCHEMA_VERSION)
    for finding in differing_settings(settings, options):
        raise InvalidConfig(
            "shards", f"differ from the database: {finding.problem}", finding.remedy
        )


def warn_of_partitions(partitions: Sequence[Partition], now: datetime) -> list[str]:
    """Warn of partitions that end soon; refuse when today has none."""
    if covered_until(partitions, now) <= now:
        raise PartitionsMissing("outbox")
    problem = running_out(partitions, now)
    return [f"{problem}; run `pillarbox schema apply`"] if problem else []


def unsafe_reasons(
    *, superuser: bool, bypass: bool, owner: bool, every_tenant: bool
) -> tuple[str, ...]:
    """Say why row-level security does not hold for a role."""
    if superuser:
        return ("is a superuser",)
    reasons = {
        "has BYPASSRLS": bypass,
        "owns the outbox tables": owner,
        "is a member of the projector's role": every_tenant,
    }
    return tuple(reason for reason, holds in reasons.items() if holds)


def unguarded(catalog: Catalog) -> list[RowSecurityMissing]:
    """Name the tenant tables that row-level security does not guard."""
    tables = tuple(finding.subject for finding in missing_walls(catalog))
    return [RowSecurityMissing(tables)] if tables else []


def _read(connection: Connection, catalog: Catalog, namespace: str) -> Settings:
    """Read the settings row, and name what keeps it from being read."""
    if not {"outbox", "outbox_settings"} <= catalog.columns.keys():
        raise SchemaMissing(f"schema {namespace}")
    schema = None
    if connection.dialect.name == "postgresql":
        schema = namespace
        table = {"table": f"{qualifier(schema)}outbox_settings"}
        role, readable = connection.execute(_MAY_READ, table).one()
        if not readable:
            raise GrantsMissing(role, f"{namespace}.outbox_settings")
    settings = read_settings(connection, schema)
    if settings is None:
        raise SchemaOutdated(0, SCHEMA_VERSION)
    return settings


def _unsafe_role(connection: Connection, namespace: str) -> list[UnsafeRole]:
    """Look up what the connected role may do that no application should."""
    table = {"table": f"{qualifier(namespace)}outbox"}
    role, superuser, bypass, owner, every_tenant = connection.execute(_ROLE, table).one()
    reasons = unsafe_reasons(
        superuser=superuser, bypass=bypass, owner=owner, every_tenant=every_tenant
    )
    return [UnsafeRole(role, reasons)] if reasons else []
