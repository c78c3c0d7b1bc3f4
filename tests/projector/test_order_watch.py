"""A broken order is noticed, once for each event, and nothing else is taken for one."""

from time import process_time

from pillarbox.projector.order import OrderWatch
from pillarbox.projector.store import OutboxEvent
from tests.projector.events import event, numbers


def versioned(
    seq: int, version: int, *, number: int = 1, author: str = "o-1", kind: str = "order"
) -> OutboxEvent:
    made = event(seq, "key")
    envelope = made.envelope._replace(
        aggregate_type=kind, aggregate_id=author, aggregate_version=version, event_number=number
    )
    return made._replace(envelope=envelope)


def test_a_lower_version_behind_a_higher_one_is_found_whichever_number_its_row_has() -> None:
    """A writer without the lock draws its number first and commits last: that passed for well."""
    watch = OrderWatch()

    found = watch.broken([versioned(11, 2)])
    late = watch.broken([versioned(10, 1)])
    falling = watch.broken([versioned(12, 1, number=2)])

    assert (numbers(found), numbers(late), numbers(falling)) == ([], [10], [12])


def test_what_is_sent_again_is_not_judged_again() -> None:
    watch = OrderWatch()
    batch = [versioned(10, 1), versioned(11, 2), versioned(12, 1)]

    first = watch.broken(batch)
    again = watch.broken(batch)

    assert (numbers(first), again) == ([12], [])


def test_events_of_one_version_go_by_their_numbers() -> None:
    watch = OrderWatch()

    found = watch.broken([versioned(1, 1, number=2), versioned(2, 1, number=1)])

    assert numbers(found) == [2]


def test_aggregates_that_share_a_key_are_judged_each_by_itself() -> None:
    watch = OrderWatch()

    found = watch.broken(
        [
            versioned(1, 5),
            versioned(2, 1, author="o-2"),
            versioned(3, 1, kind="bill"),
            versioned(4, 4),
        ]
    )

    assert numbers(found) == [4]


def test_what_was_to_be_late_or_failed_before_is_not_judged() -> None:
    watch = OrderWatch()
    watch.broken([versioned(5, 5)])

    found = watch.broken(
        [
            versioned(1, 1)._replace(scheduled=True),
            versioned(2, 2)._replace(attempts=1),
            versioned(3, 3)._replace(blocker=True),
            event(4, "key"),
        ]
    )

    assert found == []


def test_what_others_may_own_meanwhile_begins_anew() -> None:
    watch = OrderWatch()
    watch.broken([versioned(5, 5)])

    watch.forget()

    assert watch.broken([versioned(1, 1)]) == []


def test_what_is_forgotten_costs_no_more_than_what_is_remembered() -> None:
    """Each event that was forgotten walked past those that had been before it."""
    watch = OrderWatch()
    events = [versioned(n, n, author=f"o-{n}") for n in range(1, 60_001)]
    took = []

    for first in range(0, len(events), 20_000):
        began = process_time()
        for batch in range(first, first + 20_000, 500):
            watch.broken(events[batch : batch + 500])
        took.append(process_time() - began)

    assert took[-1] < 5 * took[0]


def test_only_the_last_events_are_remembered() -> None:
    watch = OrderWatch()

    watch.broken([versioned(n, n, author=f"o-{n}") for n in range(1, 60_001)])

    assert 15_000 < len(watch._judged) <= 20_000
    assert 15_000 < len(watch._last) <= 20_000
    assert numbers(watch.broken([versioned(60_001, 1, author="o-60000")])) == [60_001]
