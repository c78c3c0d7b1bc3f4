"""The statements of this store, with the schema, the shards' mask and the scope's tenants in them."""

from functools import cache
from importlib.resources import files

from pillarbox.event.rules import check_identifier
from pillarbox.projector.scope import Scope

_LISTED = " AND o.tenant_id = ANY(%(scope_tenants)s::text[])"
_BUCKET = (
    " AND ('x'||left(encode(sha256(convert_to(o.tenant_id,'UTF8')),'hex'),4))::bit(16)::integer"
    " %% %(scope_buckets)s = %(scope_bucket)s"
)
# With claim="row" the claim also writes PUBLISHING into its rows.
_MARK = """, marked AS (
    UPDATE @{schema}outbox AS o SET status = 'PUBLISHING'
    FROM claimed, unnest(%(tenants)s::text[], %(ids)s::uuid[]) AS e(tenant_id, id)
    WHERE o.tenant_id = e.tenant_id AND o.id = e.id
)"""
# What a payload weighs when it is sent: a compressed one more than it takes in the table. Only the
# sizes of text and bytes are known without reading them.
_SIZE = (
    "CASE WHEN payload IS NULL THEN coalesce(octet_length(payload_bytes), 0)"
    " WHEN pg_column_compression(payload) IS NULL THEN pg_column_size(payload)"
    " ELSE octet_length(payload::text) END"
)
# The three forms of read.sql.
_STREAMED = {"@{gathered}": "NOT MATERIALIZED", "@{small}": "SELECT true AS small"}
_NO_CLAIM = {"@{claim}": "", "@{claimed}": "NULL::integer"}
_QUICK = {**_STREAMED, **_NO_CLAIM}
_SIZED = {
    "@{gathered}": "MATERIALIZED",
    "@{small}": "SELECT count(*) <= 1 OR sum(size) <= %(bytes)s AS small FROM found",
    **_NO_CLAIM,
}
_CLAIMED = {**_STREAMED, "@{turns}": "", "@{claimed}": "(SELECT count(*)::integer FROM claimed)"}
# The two forms of settling: by a list of one tenant's ids, which is quicker, or by pairs.
_ONE_TENANT = {
    "@{from}": "",
    "@{using}": "",
    "@{match}": "o.tenant_id = %(tenant)s AND o.id = ANY(%(ids)s::uuid[])",
}
_PAIRS = "unnest(%(tenants)s::text[], %(ids)s::uuid[]) AS e(tenant_id, id) "
_MANY_TENANTS = {
    "@{from}": f"FROM {_PAIRS}",
    "@{using}": f"USING {_PAIRS}",
    "@{match}": "o.tenant_id = e.tenant_id AND o.id = e.id",
}
# Usually every lease is held, and no row needs to be looked at for it.
_FENCED = (
    "((SELECT count(*) FROM lease) = cardinality(%(shards)s::integer[])"
    " OR (o.shard_hash & @{mask}) = ANY(ARRAY(SELECT shard FROM lease)))"
)
_FORMS = {
    "read": ("read", _QUICK),
    "read_sized": ("read", _SIZED),
    "read_and_claim": ("read", _CLAIMED),
    "settle_sent": ("settle_sent", _ONE_TENANT),
    "settle_sent_many": ("settle_sent", _MANY_TENANTS),
    "settle_deleted": ("settle_deleted", _ONE_TENANT),
    "settle_deleted_many": ("settle_deleted", _MANY_TENANTS),
}


class Statements:
    """Give each statement by its file's name."""

    def __init__(self, *, schema: str | None, shards: int, scope: Scope, by_row: bool) -> None:
        self._prefix = "" if schema is None else f'"{check_identifier("schema", schema)}".'
        self._mask = str(shards - 1)
        self._tenants = _LISTED if scope.tenants else "" if scope.buckets is None else _BUCKET
        self._mark = _MARK if by_row else ""
        self._open = "IN ('NEW', 'PUBLISHING')" if by_row else "= 'NEW'"
        self._made: dict[str, bytes] = {}

    def __getitem__(self, name: str) -> bytes:
        if name not in self._made:
            file, form = _FORMS.get(name, (name, {}))
            text = _written(file)
            for variable, value in form.items():
                text = text.replace(variable, value)
            text = text.replace("@{turns}", _written("read_turns"))
            text = text.replace("@{claim}", _written("read_claim"))
            text = text.replace("@{fenced}", _FENCED).replace("@{size}", _SIZE)
            text = text.replace("@{mark}", self._mark).replace("@{open}", self._open)
            text = text.replace("@{mask}", self._mask).replace("@{tenants}", self._tenants)
            self._made[name] = text.replace("@{schema}", self._prefix).encode()
        return self._made[name]


@cache
def _written(name: str) -> str:
    text = files("pillarbox.projector.postgres").joinpath(f"sql/{name}.sql").read_text("utf-8")
    lines = map(str.strip, text.splitlines())
    text = " ".join(line for line in lines if not line.startswith("--"))
    # Short: psycopg looks for parameters in a longer text each time it is used.
    return text.replace("( ", "(").replace(" )", ")").replace(", ", ",").replace(" = ", "=")
