"""Which engines take a compiled statement from each other."""

import json
from typing import Any

import pytest
from sqlalchemy import create_engine, select

from tests.support.orders import Order
from tests.support.statements import likeness

STATEMENT = select(Order.id)


def compiled(**options: Any) -> object:
    """Run a statement on an engine of its own; return what was made of it."""
    engine = create_engine("sqlite://", **options)
    with engine.connect() as connection:
        Order.metadata.create_all(connection)
        ran: Any = connection.execute(STATEMENT)
        made: object = ran.context.compiled
    engine.dispose()
    return made


def test_engines_of_the_same_kind_take_a_statement_from_each_other() -> None:
    assert compiled() is compiled()


@pytest.mark.parametrize("options", [{"paramstyle": "named"}, {"json_serializer": json.dumps}])
def test_engines_with_other_options_compile_for_themselves(options: dict[str, Any]) -> None:
    assert compiled() is not compiled(**options)


def test_servers_of_different_versions_are_not_alike() -> None:
    old, new = (create_engine("postgresql+psycopg://").dialect for _ in range(2))
    assert likeness(old) == likeness(new)

    old.server_version_info, new.server_version_info = (15, 0), (18, 0)

    assert likeness(old) != likeness(new)


def test_what_a_dialect_has_been_asked_makes_no_difference() -> None:
    asked, fresh = (create_engine("postgresql+psycopg://").dialect for _ in range(2))

    assert asked._type_memos is not None

    assert likeness(asked) == likeness(fresh)
