"""The rig, on each broker in turn or on all at once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.brokers import BROKERS
from tests.faults.rig import Rig, rigged, seed_of
from tests.support.servers import require


@pytest.fixture(params=[*BROKERS])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """Servers of the test's own: it may kill them."""
    for server in ("postgres18", request.param):
        require(request.config, server)
    with rigged({request.param: BROKERS[request.param]}, tmp_path, seed_of(request.node.name)) as (
        made,
    ):
        yield made


@pytest.fixture
def rigs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Rig]]:
    """Yield all brokers at once, for faults that mostly wait; each has a database of its own."""
    for server in ("postgres18", *BROKERS):
        require(request.config, server)
    with rigged(BROKERS, tmp_path, seed_of(request.node.name)) as made:
        yield made
