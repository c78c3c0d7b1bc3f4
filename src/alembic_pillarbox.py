"""The Alembic plugin: directives for migrations, and autogenerate that leaves our tables alone.

Alembic imports this wherever it is imported itself, so it imports nothing of Pillarbox until a
migration runs or is generated. Alembic before 1.18 knows no plugins: import this in `env.py`.
"""

from typing import TYPE_CHECKING, Any

from alembic.operations import MigrateOperation, Operations

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext
    from alembic.operations.ops import UpgradeOps
    from alembic.runtime.plugins import Plugin
    from alembic.util import PriorityDispatchResult


@Operations.register_operation("create_outbox")
@Operations.register_operation("upgrade_outbox", "upgrade_outbox")
@Operations.register_operation("downgrade_outbox", "downgrade_outbox")
class OutboxOp(MigrateOperation):
    """Bring the tables of Pillarbox to a version, from another one or from nothing."""

    def __init__(self, first: int, last: int, options: dict[str, Any]) -> None:
        self.first, self.last, self.options = first, last, options

    @classmethod
    def create_outbox(cls, operations: Operations, version: int, **options: Any) -> None:
        """Create the tables of a version; options are `schema`, `shards`, `partitioned`, `tenancy`.

        What is not named is taken from the lines `pillarbox_…` of `alembic.ini`.
        """
        operations.invoke(cls(1, version, options))

    @classmethod
    def upgrade_outbox(cls, operations: Operations, version: int, **options: Any) -> None:
        """Bring the tables from the version before to this one; options as for `create_outbox`."""
        operations.invoke(cls(version, version, options))

    @classmethod
    def downgrade_outbox(cls, operations: Operations, version: int, **options: Any) -> None:
        """Take a version away, unless that would lose what is not delivered."""
        operations.invoke(cls(version, version - 1, options))


@Operations.implementation_for(OutboxOp)
def _run(operations: Operations, operation: OutboxOp) -> None:
    del operations
    from pillarbox.migrations.run import (  # noqa: PLC0415 - when a migration runs
        downgrade_from,
        upgrade_through,
    )

    if operation.last < operation.first:
        downgrade_from(operation.first, **operation.options)
    else:
        upgrade_through(operation.first, operation.last, **operation.options)


def setup(plugin: "Plugin") -> None:
    """Let autogenerate leave alone what our migrations manage; named in `autogenerate_plugins`."""
    from alembic.util import DispatchPriority  # noqa: PLC0415 - there since Alembic has plugins

    first, last = DispatchPriority.FIRST, DispatchPriority.LAST
    plugin.add_autogenerate_comparator(_look_away, "autogenerate", priority=first)
    plugin.add_autogenerate_comparator(_leave_alone, "autogenerate", priority=last)


def _look_away(context: "AutogenContext", upgrade_ops: "UpgradeOps") -> "PriorityDispatchResult":
    """Have our tables not even read: SQLAlchemy warns of column types that it does not know."""
    del upgrade_ops
    from alembic.util import PriorityDispatchResult  # noqa: PLC0415 - as above

    from pillarbox.migrations.autogenerate import include_name  # noqa: PLC0415 - as above

    context._name_filters.append(include_name())  # noqa: SLF001 - `include_name` of `configure` ends up there
    return PriorityDispatchResult.CONTINUE


def _leave_alone(context: "AutogenContext", upgrade_ops: "UpgradeOps") -> "PriorityDispatchResult":
    """Take back what attached tables that were not read look like: new."""
    from alembic.util import PriorityDispatchResult  # noqa: PLC0415 - as above

    from pillarbox.migrations.autogenerate import others  # noqa: PLC0415 - when it is generated

    upgrade_ops.ops = others(upgrade_ops.ops, context)
    return PriorityDispatchResult.CONTINUE
