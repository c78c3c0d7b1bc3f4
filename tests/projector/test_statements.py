"""The statements' texts, as psycopg takes them."""

from pathlib import Path

import pytest
from psycopg._queries import MAX_CACHED_STATEMENT_LENGTH

from pillarbox.projector.postgres import statements
from pillarbox.projector.postgres.statements import Statements
from pillarbox.projector.scope import Scope, scope_of

FILES = sorted((Path(statements.__file__).parent / "sql").glob("*.sql"))
PARTS = {"read_claim", "read_turns"}
NAMES = {file.stem for file in FILES} - PARTS | {"read_sized", "read_and_claim"}
SCOPES = [scope_of(None), scope_of(["acme", "globex"]), scope_of(None, "0/8")]


@pytest.mark.parametrize("scope", SCOPES, ids=str)
@pytest.mark.parametrize("name", sorted(NAMES))
def test_psycopg_looks_for_the_parameters_of_a_statement_only_once(name: str, scope: Scope) -> None:
    texts = Statements(schema="s" * 63, shards=65_536, scope=scope, by_row=True)

    assert len(texts[name]) <= MAX_CACHED_STATEMENT_LENGTH


def test_comments_stay_in_the_files() -> None:
    texts = Statements(schema=None, shards=64, scope=Scope(), by_row=False)

    assert not [name for name in NAMES if b"--" in texts[name] or b"@{" in texts[name]]
