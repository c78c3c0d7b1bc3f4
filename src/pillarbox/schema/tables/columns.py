"""What the tables share: one metadata, and the column types and indexes that return in them."""

from typing import Any, Final

from sqlalchemy import BigInteger, Index, Integer, MetaData, Sequence, String, text
from sqlalchemy.dialects.postgresql import ARRAY

from pillarbox.schema.types import StoredJson, TransactionIdType

metadata: Final = MetaData()
# SQLite has no sequences: there a writer draws numbers from outbox_settings.last_seq.
SEQUENCES: Final = ("inbox_parked_seq", "outbox_seq")
for _name in SEQUENCES:
    Sequence(_name, metadata=metadata)

BIG: Final = BigInteger().with_variant(Integer, "sqlite")
TXID: Final = TransactionIdType().with_variant(BigInteger, "sqlite")
# Binary collation: identifiers compare as bytes, quickly and alike on every server.
TENANT: Final = String(64, collation="C").with_variant(String(64), "sqlite")
IDENTIFIER: Final = String(255, collation="C").with_variant(String(255), "sqlite")
DIGEST: Final = String(64, collation="C").with_variant(String(64), "sqlite")
NUMBERS: Final = ARRAY(BigInteger).with_variant(StoredJson, "sqlite")


def partial(name: str, *columns: Any, where: str) -> Index:
    """Make an index that a row leaves as soon as the condition no longer holds."""
    return Index(name, *columns, postgresql_where=text(where), sqlite_where=text(where))
