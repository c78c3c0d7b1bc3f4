"""The fixture `pillarbox` where it cannot work: it says what is missing."""

import pytest


@pytest.fixture
def pillarbox() -> None:
    """Say that pytest-asyncio is needed."""
    raise pytest.UsageError(
        "the fixture `pillarbox` needs pytest-asyncio; run `pip install 'pillarbox[testing]'`"
    )
