"""A database, a broker or a machine that is not ready."""

from pillarbox.errors.root import PillarboxError


class SetupError(PillarboxError):
    """The database or the machine is not ready for the call."""

    code = "setup"


class SchemaMissing(SetupError):
    """The outbox tables are not in the database."""

    code = "schema-missing"

    def __init__(self, where: str) -> None:
        super().__init__(
            f"the outbox tables are not in {where}, so no event can be recorded; "
            "run `pillarbox schema apply`"
        )
        self.where = where


class SchemaOutdated(SetupError):
    """The database schema is of another version than this code."""

    code = "schema-outdated"

    def __init__(self, found: int, needed: int) -> None:
        remedy = "run `pillarbox schema apply`" if found < needed else "upgrade pillarbox"
        super().__init__(f"schema is at {found}, this version needs {needed}; {remedy}")
        self.found, self.needed = found, needed


class SchemaInUse(SetupError):
    """Tables that were to be dropped hold what is not done."""

    code = "schema-in-use"

    def __init__(self, waiting: int, what: str, remedy: str) -> None:
        super().__init__(
            f"{waiting:,} {what}, dropping the table would lose them; {remedy}, and repeat"
        )
        self.waiting, self.what, self.remedy = waiting, what, remedy


class PartitionsMissing(SetupError):
    """No partition of the outbox takes an event of today."""

    code = "partitions-missing"

    def __init__(self, table: str) -> None:
        super().__init__(
            f"{table} has no partition for today, so every transaction that records an event "
            "fails; run `pillarbox schema apply`"
        )
        self.table = table


class GrantsMissing(SetupError):
    """The role may not use the outbox tables."""

    code = "grants-missing"

    def __init__(self, role: str, table: str) -> None:
        super().__init__(
            f"role {role} may not read {table}; apply the output of `pillarbox schema grants`, "
            f"then `GRANT pillarbox_app TO {role}`"
        )
        self.role, self.table = role, table


class UnsafeRole(SetupError):
    """Row-level security does not hold for the role of the application."""

    code = "unsafe-role"

    def __init__(self, role: str, reasons: tuple[str, ...]) -> None:
        super().__init__(
            f"role {role} {' and '.join(reasons)}, so it can reach every tenant's rows; "
            "connect as a role that is only a member of pillarbox_app "
            "(`pillarbox schema grants`), or pass allow_unsafe_role=True"
        )
        self.role, self.reasons = role, reasons


class RowSecurityMissing(SetupError):
    """Tenancy is on, and nothing in the database keeps the tenants apart."""

    code = "row-security-missing"

    def __init__(self, tables: tuple[str, ...]) -> None:
        super().__init__(
            f"row-level security does not guard {', '.join(tables)}, so tenants are kept apart by "
            "the application alone; run `pillarbox schema apply --tenancy`, "
            "or pass allow_unsafe_role=True"
        )
        self.tables = tables


class DatabaseUnreachable(SetupError):
    """The database does not answer when a process starts."""

    code = "database-unreachable"

    def __init__(self, database: str) -> None:
        super().__init__(
            f"the database at {database} does not answer; is it running? "
            "`pillarbox dev` takes new ports each time, so paste the lines it prints again"
        )
        self.database = database


class BusUnreachable(SetupError):
    """The broker does not answer when a process starts."""

    code = "bus-unreachable"

    def __init__(self, bus: str, reason: str) -> None:
        super().__init__(
            f"the bus at {bus} does not answer: {reason}; events wait in the outbox until it does"
        )
        self.bus, self.reason = bus, reason


class ScopeOverlaps(SetupError):
    """Another projector serves some of the same tenants, and not the same set of them."""

    code = "scope-overlaps"

    def __init__(self, scope: str, other: str, where: str) -> None:
        super().__init__(
            f"this projector would serve {scope}, and one on {where} serves {other}; give both the "
            "same tenants, so that they share the work, or stop the other one first"
        )
        self.scope, self.other, self.where = scope, other, where
