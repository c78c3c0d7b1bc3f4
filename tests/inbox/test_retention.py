from datetime import timedelta

import pytest

from pillarbox.inbox.retention import retention_warning

MONTH = timedelta(days=30)


@pytest.mark.parametrize("redelivery", [timedelta(0), timedelta(days=7), timedelta(days=29.9)])
def test_an_inbox_that_remembers_for_longer_is_fine(redelivery: timedelta) -> None:
    assert retention_warning("payments", MONTH, redelivery) is None


@pytest.mark.parametrize(
    ("redelivery", "words", "remedy"),
    [
        (timedelta(days=30), "again for 30 days", "keep records for longer"),
        (timedelta(days=45.5), "again for 45.5 days", "keep records for longer"),
        (None, "again at any time", "no retention is long enough"),
    ],
)
def test_one_that_forgets_too_early_is_told_with_both_numbers(
    redelivery: timedelta | None, words: str, remedy: str
) -> None:
    warning = retention_warning("payments", MONTH, redelivery)

    assert warning is not None
    assert "'payments' remembers messages for 30 days" in warning
    assert words in warning
    assert remedy in warning
