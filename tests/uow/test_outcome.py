"""Which errors of a COMMIT leave its outcome open."""

from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from pillarbox.uow.outcome import is_unknown


def refused(state: str | None, *, lost: bool) -> DBAPIError:
    original: Any = SimpleNamespace(sqlstate=state)
    return DBAPIError("COMMIT", None, original, connection_invalidated=lost)


@pytest.mark.parametrize("state", ["23505", "40001", "23503"])
def test_what_the_database_refuses_is_a_failure(state: str) -> None:
    assert not is_unknown(refused(state, lost=False))


@pytest.mark.parametrize("state", [None, "08006", "57P01", "57P02"])
def test_a_connection_that_is_gone_leaves_it_open(state: str | None) -> None:
    assert is_unknown(refused(state, lost=True))


@pytest.mark.parametrize("state", ["58030", "53100", "XX000"])
def test_a_server_that_dies_over_its_log_leaves_it_open_whatever_it_says(state: str) -> None:
    assert is_unknown(refused(state, lost=True))
