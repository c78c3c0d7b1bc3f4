"""Keep a user's `alembic revision --autogenerate` away from tables that are ours."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from pillarbox.outbox.tables import metadata

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
