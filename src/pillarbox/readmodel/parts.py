"""What the parts of a read model have in common: its database, its log, its settings."""

from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.clock import SYSTEM_CLOCK, Clock
from pillarbox.consumer.transactions import SessionFactory, Transactions
from pillarbox.errors import InvalidConfig
from pillarbox.event.incoming import DEFAULT_RULES, ReadingRules
from pillarbox.event.registry import EventRegistry
from pillarbox.migrations.frozen import qualifier
from pillarbox.readmodel.cache import RowCache
from pillarbox.readmodel.config import ReadModelConfig
from pillarbox.readmodel.observer import Observer

_SEES_ALL: Final = text(
    "SELECT NOT row_security_active(:table) OR EXISTS (SELECT FROM pg_policy p, "
    "unnest(p.polroles) role WHERE p.polrelid = to_regclass(:table) AND role <> 0 "
    "AND pg_get_expr(p.polqual, p.polrelid) = 'true' AND pg_has_role(role, 'USAGE'))"
)


@dataclass(frozen=True, slots=True)
class Parts:
    """Where a read model works and by which rules; shared by its runner and its rebuild."""

    session_factory: SessionFactory
    config: ReadModelConfig = field(default_factory=ReadModelConfig)
    registry: EventRegistry | None = None
    rules: ReadingRules = DEFAULT_RULES
    observer: Observer = field(default_factory=Observer)
    service: str = "default"
    schema: str | None = None
    clock: Clock = SYSTEM_CLOCK
    cache: RowCache | None = None
    transactions: Transactions = field(init=False)
    walled: bool = field(init=False)

    def __post_init__(self) -> None:
        transactions = Transactions(self.session_factory, self.schema)
        object.__setattr__(self, "transactions", transactions)
        object.__setattr__(self, "walled", transactions.is_walled())

    async def refuse_blindness(self, session: AsyncSession) -> None:
        """Refuse a role behind the wall, which would take other tenants' events for not there."""
        connection = await session.connection()
        if not await connection.run_sync(self._sees_all):
            raise InvalidConfig(
                "database",
                "is reached by a role that sees one tenant's events at a time",
                "let read models that follow the log connect as a member of pillarbox_projector",
            )

    def _sees_all(self, connection: Connection) -> bool:
        if connection.dialect.name != "postgresql":
            return True
        return bool(connection.scalar(_SEES_ALL, {"table": f"{qualifier(self.schema)}outbox"}))
