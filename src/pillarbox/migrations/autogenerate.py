"""Keep a user's `alembic revision --autogenerate` away from tables that are ours."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pillarbox.migrations.run import options_of
from pillarbox.schema.tables import metadata

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext
    from alembic.operations import MigrateOperation

_PARTITION: Final = re.compile(r"outbox_p[0-9]{8}")

NameFilter = Callable[[str | None, str, Mapping[Any, Any]], bool]


def include_name(*, attached: bool = False) -> NameFilter:
    """Return the `include_name` for `context.configure`; `attached` says who knows the tables.

    Our tables are hidden unless they are attached to the user's metadata; partitions always are.

        context.configure(connection, target_metadata=metadata, include_name=include_name())
    """

    def include(name: str | None, kind: str, parents: Mapping[Any, Any]) -> bool:
        del parents
        if kind != "table" or name is None:
            return True
        return not (_PARTITION.fullmatch(name) or (name in metadata.tables and not attached))

    return include


def others(
    operations: "Iterable[MigrateOperation]", context: "AutogenContext"
) -> "list[MigrateOperation]":
    """Leave out what autogenerate would do to tables and partitions that our migrations manage.

    Functions, triggers, policies and views autogenerate does not look at.
    """
    schema = options_of(context.migration_context.config).schema
    return [found for found in operations if not _is_ours(found, schema)]


def _is_ours(operation: "MigrateOperation", schema: str | None) -> bool:
    name: str | None = getattr(operation, "table_name", None)
    if name is None or getattr(operation, "schema", None) not in (None, schema):
        return False
    return name in metadata.tables or _PARTITION.fullmatch(name) is not None
