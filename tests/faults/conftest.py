"""The rig, on each broker in turn."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.rig import Rig, rigged, seed_of
from tests.support.servers import require


@pytest.fixture(params=["kafka", "nats"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """Servers of the test's own: it may kill them."""
    for server in ("postgres18", request.param):
        require(request.config, server)
    with rigged(request.param, tmp_path, seed_of(request.node.name)) as made:
        yield made
