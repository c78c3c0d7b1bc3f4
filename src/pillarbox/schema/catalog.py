"""What a database says about our tables, as plain values."""

from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import BindParameter, Connection, bindparam, text

from pillarbox.migrations.frozen import qualifier
from pillarbox.schema.tables import SEQUENCES, metadata, outbox_settings

LIVE_VIEW: Final = "outbox_live"

_LOCATE = text(
    "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.oid = coalesce(to_regclass(:settings), to_regclass(:outbox))"
)
_NAMES: BindParameter[list[str]] = bindparam("names", [*metadata.tables, LIVE_VIEW], expanding=True)
_OURS: BindParameter[list[int]] = bindparam("ours", expanding=True)
# The relations of our names, and the partitions of the outbox.
_RELATIONS = text(
    "SELECT c.oid FROM pg_class c WHERE c.relnamespace = to_regnamespace(:namespace) "
    "AND c.relname IN :names UNION SELECT i.inhrelid FROM pg_inherits i "
    "WHERE i.inhparent = to_regclass(:outbox)"
).bindparams(_NAMES)
_COLUMNS = text(
    "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
    "WHERE c.oid IN :ours AND c.relkind IN ('r', 'p', 'v') AND a.attnum > 0 "
    "AND NOT a.attisdropped"
).bindparams(_OURS)
_INDEXES = text(
    "SELECT c.relname, pg_get_indexdef(c.oid), i.indisvalid FROM pg_class c "
    "JOIN pg_index i ON i.indexrelid = c.oid WHERE i.indrelid IN :ours"
).bindparams(_OURS)
_CONSTRAINTS = text(
    "SELECT t.relname, k.conname, k.contype::text, ARRAY(SELECT a.attname::text "
    "FROM unnest(k.conkey) WITH ORDINALITY AS n (attnum, place) JOIN pg_attribute a "
    "ON a.attrelid = t.oid AND a.attnum = n.attnum ORDER BY n.place) FROM pg_constraint k "
    "JOIN pg_class t ON t.oid = k.conrelid WHERE k.contype IN ('c', 'p') AND t.oid IN :ours"
).bindparams(_OURS)
_WALLS = text(
    "SELECT c.relname FROM pg_class c WHERE c.oid IN :ours "
    "AND c.relrowsecurity AND c.relforcerowsecurity AND ("
    "c.relispartition OR EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid "
    "AND p.polname = 'pillarbox_tenant' AND p.polqual IS NOT NULL "
    "AND p.polwithcheck IS NOT NULL))"
).bindparams(_OURS)
_SEQUENCES = text(
    "SELECT c.relname FROM pg_class c WHERE c.relkind = 'S' "
    "AND c.relnamespace = to_regnamespace(:namespace) AND c.relname IN :sequences"
).bindparams(bindparam("sequences", SEQUENCES, expanding=True))
_INVOKER = text(
    "SELECT coalesce('security_invoker=true' = ANY (c.reloptions), false) FROM pg_class c "
    "WHERE c.oid = to_regclass(:view)"
)
_LITE_COLUMNS = text(
    "SELECT m.name, p.name, p.pk, m.sql FROM sqlite_master m JOIN pragma_table_info(m.name) p "
    "WHERE m.type IN ('table', 'view') AND m.name IN :names ORDER BY m.name, p.pk"
).bindparams(_NAMES)
_LITE_INDEXES = text(
    "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL "
    "AND tbl_name IN :names"
).bindparams(_NAMES)


@dataclass(frozen=True, slots=True)
class IndexState:
    """The definition of an index, and whether it is complete."""

    definition: str
    valid: bool = True


@dataclass(frozen=True, slots=True)
class Catalog:
    """Our relations: columns, keys, constraints, indexes, walls."""

    columns: dict[str, set[str]] = field(default_factory=dict)
    keys: dict[str, list[str]] = field(default_factory=dict)
    constraints: set[str] = field(default_factory=set)
    indexes: dict[str, IndexState] = field(default_factory=dict)
    walled: set[str] = field(default_factory=set)
    sequences: set[str] = field(default_factory=lambda: set(SEQUENCES))
    view_invoker: bool = True


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings row."""

    schema_version: int
    shard_count: int
    shard_hash: str
    layout: str


def locate(connection: Connection, schema: str | None) -> str | None:
    """Return the schema that holds the outbox tables, or nothing; `main` on SQLite."""
    if connection.dialect.name != "postgresql":
        found = connection.exec_driver_sql(
            "SELECT 1 FROM sqlite_master WHERE name IN ('outbox_settings', 'outbox')"
        )
        return "main" if found.first() else None
    names = {table: f"{qualifier(schema)}{table}" for table in ("outbox", "outbox_settings")}
    parameters = {"settings": names["outbox_settings"], "outbox": names["outbox"]}
    namespace: str | None = connection.scalar(_LOCATE, parameters)
    return namespace


def read_settings(connection: Connection, schema: str | None) -> Settings | None:
    """Read the settings row; nothing when the table exists without it."""
    c = outbox_settings.c
    options = {"schema_translate_map": {None: schema}} if schema else {}
    found = connection.execute(
        outbox_settings.select().with_only_columns(
            c.schema_version, c.shard_count, c.shard_hash, c.layout
        ),
        execution_options=options,
    ).first()
    return None if found is None else Settings(*found)


def read_catalog(connection: Connection, namespace: str) -> Catalog:
    """Read our relations."""
    if connection.dialect.name == "postgresql":
        return _read_postgresql(connection, namespace)
    return _read_sqlite(connection)


def _read_postgresql(connection: Connection, namespace: str) -> Catalog:
    schema = {"namespace": f'"{namespace}"'}
    outbox = {"outbox": f"{qualifier(namespace)}outbox"}
    here = {"ours": connection.scalars(_RELATIONS, schema | outbox).all()}
    columns: dict[str, set[str]] = {}
    for table, column in connection.execute(_COLUMNS, here):
        columns.setdefault(table, set()).add(column)
    constraints = connection.execute(_CONSTRAINTS, here).all()
    indexes = connection.execute(_INDEXES, here)
    view = {"view": f"{qualifier(namespace)}{LIVE_VIEW}"}
    return Catalog(
        columns=columns,
        keys={table: list(names) for table, _, kind, names in constraints if kind == "p"},
        constraints={name for _, name, kind, _ in constraints if kind == "c"},
        indexes={name: IndexState(text, valid) for name, text, valid in indexes},
        walled=set(connection.scalars(_WALLS, here)),
        sequences=set(connection.scalars(_SEQUENCES, schema)),
        view_invoker=bool(connection.scalar(_INVOKER, view)),
    )


def _read_sqlite(connection: Connection) -> Catalog:
    columns: dict[str, set[str]] = {}
    keys: dict[str, list[str]] = {}
    sources: dict[str, str] = {}
    for table, column, place, source in connection.execute(_LITE_COLUMNS):
        columns.setdefault(table, set()).add(column)
        sources[table] = source
        if place:
            keys.setdefault(table, []).append(column)
    words = {word for source in sources.values() for word in source.split()}
    return Catalog(
        columns=columns,
        keys=keys,
        constraints={word for word in words if word.startswith("ck_")},
        indexes={name: IndexState(text) for name, text in connection.execute(_LITE_INDEXES)},
    )
