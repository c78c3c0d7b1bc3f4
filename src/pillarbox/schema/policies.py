"""Row-level security, roles and grants: the wall between tenants."""

import re
from importlib.resources import files
from typing import Final, Literal, get_args

from pillarbox.errors import InvalidConfig
from pillarbox.event.rules import check_identifier
from pillarbox.migrations.frozen import SqlTemplate, qualifier, statements
from pillarbox.schema.options import PROJECTOR_ROLE, SchemaOptions
from pillarbox.schema.tables import PROJECTOR_TABLES, TENANT_TABLES

TENANT_SETTING: Final = "app.tenant"
_SETTING: Final = re.compile(r"[a-z_][a-z0-9_]{0,30}\.[a-z_][a-z0-9_]{0,30}")

TenantType = Literal["text", "uuid", "bigint", "integer"]


def tenant_policies(
    table: str,
    *,
    schema: str | None = None,
    column: str = "tenant_id",
    column_type: TenantType = "text",
    setting: str = TENANT_SETTING,
    application_role: str | None = None,
    projector_role: str | None = PROJECTOR_ROLE,
) -> list[str]:
    """Return the statements that wall the tenants of a table off from one another.

    For the outbox and for tables of your own, in a migration:

        for statement in tenant_policies("orders", projector_role=None):
            op.execute(statement)

    The tenant's policy holds for everyone who has rights on the table, unless `application_role`
    names one role; a `projector_role` may read and write every tenant's rows.
    """
    role = _checked("application_role", application_role)
    tokens = {
        "table": qualifier(_checked("schema", schema)) + f'"{check_identifier("table", table)}"',
        "column": check_identifier("column", column),
        "setting": _checked_setting(setting),
        "cast": _cast(column_type),
        "application": f'"{role}"' if role else "PUBLIC",
        "projector": _checked("projector_role", projector_role) or "",
    }
    texts = ["policy.sql"] + (["policy_projector.sql"] if projector_role else [])
    return [statement for name in texts for statement in statements(_filled(name, tokens))]


def policies_sql(options: SchemaOptions) -> str:
    """Return the row-level security of the tables, as one script."""
    lines = [
        f"{statement};"
        for table in TENANT_TABLES
        for statement in tenant_policies(
            table.name,
            schema=options.schema,
            projector_role=options.projector_role if table in PROJECTOR_TABLES else None,
        )
    ]
    partitions = _filled("policy_partitions.sql", {"schema": qualifier(options.schema)})
    return "\n".join([*lines, partitions])


def grants_sql(options: SchemaOptions) -> str:
    """Return roles and grants of application and projector, as one script."""
    tokens = {
        "schema": qualifier(options.schema),
        "namespace": options.schema or "public",
        "application": options.application_role,
        "projector": options.projector_role,
    }
    return "\n".join(_filled(name, tokens) for name in ("roles.sql", "grants.sql"))


def _filled(name: str, tokens: dict[str, str]) -> str:
    template = (files("pillarbox.schema") / "sql" / name).read_text("utf-8")
    return SqlTemplate(template).substitute(tokens)


def _checked(setting: str, value: str | None) -> str | None:
    return None if value is None else check_identifier(setting, value)


def _cast(column_type: TenantType) -> str:
    if column_type in get_args(TenantType):
        return "" if column_type == "text" else f"::{column_type}"
    remedy = f"use one of {', '.join(get_args(TenantType))}"
    raise InvalidConfig("column_type", "is no type of a tenant's column", remedy)


def _checked_setting(value: str) -> str:
    if _SETTING.fullmatch(value):
        return value
    remedy = "use two lower-case names joined by a dot, as in app.tenant"
    raise InvalidConfig("setting", "is no name of a custom setting", remedy)
