"""The fixtures; what they import they import when a test asks for them."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from pillarbox import Pillarbox
    from pillarbox.testing import BoxUnderTest


@pytest.fixture
def pillarbox_app(request: pytest.FixtureRequest) -> "Pillarbox":
    """The application's Pillarbox: by the marker, by the ini file, or by a fixture of yours."""
    from pillarbox.testing.fixture.chosen import chosen_app  # noqa: PLC0415 - costs nothing unused

    return chosen_app(request.node, request.config)


@pytest_asyncio.fixture
async def pillarbox_connection(pillarbox_app: "Pillarbox") -> "AsyncIterator[AsyncConnection]":
    """A connection whose transaction ends with the test; replace it by that of your session."""
    from pillarbox.testing.fixture.connection import (  # noqa: PLC0415 - costs nothing unused
        rolled_back,
    )

    async with rolled_back(pillarbox_app.engine) as connection:
        yield connection


@pytest_asyncio.fixture
async def pillarbox(
    request: pytest.FixtureRequest,
    pillarbox_app: "Pillarbox",
    pillarbox_connection: "AsyncConnection",
) -> "AsyncIterator[BoxUnderTest]":
    """The application's Pillarbox, in the test's own transaction and on a bus in memory."""
    from pillarbox.testing.fixture.chosen import (  # noqa: PLC0415 - costs nothing unused
        chosen_consumers,
    )
    from pillarbox.testing.fixture.under_test import under_test  # noqa: PLC0415 - as above

    consumers = chosen_consumers(request.node, pillarbox_app)
    async with under_test(pillarbox_app, pillarbox_connection, consumers) as found:
        yield found
