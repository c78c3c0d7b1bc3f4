"""What subscriptions remember of their partitions: pure, without a broker."""

import pytest

from pillarbox.bus.kafka.subscription_share import FURTHEST, Share
from pillarbox.bus.nats.subscription_durables import durable_name
from pillarbox.bus.nats.subscription_lane import Arrival, Durable, Lane, Pending
from pillarbox.bus.nats.subscription_presence import Presence, shared_out
from pillarbox.bus.subscription import Delivery
from pillarbox.event.incoming import Incoming


def share_with(*offsets: int, end: int = 0) -> Share:
    share = Share("orders", 3)
    share.end = end
    for offset in offsets:
        share.came(offset)
    return share


def lane() -> Lane:
    return Lane(Durable("orders", "orders.p0", "orders", "payments-orders_p0"), batch=100)


def came(sequence: int, number: int, pin: str = "ours") -> Arrival:
    message = Incoming("orders", None, {}, b"")
    delivery = Delivery(message, "orders.p0", str(sequence), False, (None, sequence))
    return Arrival(delivery, sequence, number, f"reply-{sequence}-{number}", pin)


def sequences(deliveries: list[Delivery]) -> list[int]:
    return [delivery.token[1] for delivery in deliveries]


def test_a_position_moves_to_the_lowest_unfinished_message() -> None:
    share = share_with(10, 11, 12, 13)

    share.finish(12)
    share.finish(11)
    assert share.to_commit() is None
    share.finish(10)
    assert share.to_commit() == 13
    share.finish(13)
    assert share.to_commit() == 14


def test_a_position_that_is_committed_is_not_committed_again() -> None:
    share = share_with(10, 11)
    share.finish(10)

    share.committed = 11

    assert share.to_commit() is None


def test_a_partition_without_messages_has_no_position() -> None:
    assert Share("orders", 3).to_commit() is None
    assert Share("orders", 3).next is None


def test_offsets_with_gaps_are_followed() -> None:
    share = share_with(10, 15, 99)

    for offset in (15, 10, 15):
        share.finish(offset)

    assert share.to_commit() == 99


def test_only_what_was_there_before_us_may_have_been_begun() -> None:
    share = share_with(end=12)

    assert [share.came(offset) for offset in (10, 11, 12, 13)] == [True, True, False, False]


def test_nobody_can_have_begun_with_what_lies_too_far_ahead() -> None:
    share = share_with(end=10_000_000)

    assert share.came(0)
    assert not share.came(FURTHEST * 2)


def test_a_partition_is_ahead_of_its_committed_position() -> None:
    share = share_with(10, 11, 12)
    assert share.ahead() == 3

    share.committed = 12

    assert share.ahead() == 1


def test_a_lane_hands_nothing_on_while_another_member_has_messages() -> None:
    found = lane()
    ready = [*found.came(came(11, 21)), *found.came(came(12, 22))]

    others_have_one = found.settle(Pending(delivered=22, unacknowledged=3, waiting=0))
    found.came(came(5, 23))
    all_are_ours = found.settle(Pending(delivered=23, unacknowledged=3, waiting=0))

    assert [ready, others_have_one] == [[], []]
    assert sequences(all_are_ours) == [5, 11, 12]
    assert sequences(found.came(came(13, 24))) == [13]


def test_deliveries_after_the_servers_answer_do_not_count_as_those_it_spoke_of() -> None:
    found = lane()
    found.came(came(11, 21))
    found.came(came(12, 22))

    early = found.settle(Pending(delivered=21, unacknowledged=2, waiting=0))

    assert early == []
    assert not found.settled


def test_a_new_pin_makes_a_lane_ask_again() -> None:
    found = lane()
    found.came(came(11, 21))
    found.settle(Pending(delivered=21, unacknowledged=1, waiting=0))
    doubts = found.doubts

    ready = found.came(came(12, 22, pin="another"))

    assert ready == []
    assert found.doubts == doubts + 1


def test_a_message_that_comes_again_while_we_have_it_is_answered_where_it_came_last() -> None:
    found = lane()
    found.came(came(11, 21))
    found.settle(Pending(delivered=21, unacknowledged=1, waiting=0))

    again = found.came(came(11, 25))

    assert again == []
    assert found.finish([11, 11, 99]) == ["reply-11-25"]


def test_what_a_lane_gives_up_is_no_longer_its_own() -> None:
    found = lane()
    found.came(came(11, 21))

    assert found.give_up() == ["reply-11-21"]
    assert found.finish([11]) == []
    assert found.pin is None


def test_members_share_partitions_out_and_a_third_one_moves_few() -> None:
    members = [Presence("payments", f"member-{number}") for number in range(3)]
    subjects = [f"orders.p{number}" for number in range(300)]
    for one in members[:2]:
        for other in members[:2]:
            one.heard(other.beat(), 1.0)
    before = {s: [m.me for m in members[:2] if s in m.share(subjects)] for s in subjects}

    for one in members:
        for other in members:
            one.heard(other.beat(), 2.0)
    after = {s: [m.me for m in members if s in m.share(subjects)] for s in subjects}

    assert all(len(owners) == 1 for owners in (*before.values(), *after.values()))
    moved = [s for s in subjects if before[s] != after[s]]
    assert len([s for s in moved if after[s] == [members[2].me]]) == 100
    assert len(moved) < 115


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 8, 16, 64])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_no_member_has_two_partitions_more_than_another(partitions: int, count: int) -> None:
    subjects = [f"orders.p{number}" for number in range(partitions)]
    for attempt in range(20):
        members = [f"{attempt}-{number}" for number in range(count)]

        owners = shared_out(members, subjects)

        shares = [list(owners.values()).count(member) for member in members]
        assert sorted(owners) == sorted(subjects)
        assert sum(shares) == partitions
        assert max(shares) - min(shares) <= 1
        assert shared_out(members[::-1], subjects) == owners


def test_a_member_that_is_silent_or_says_goodbye_is_forgotten() -> None:
    one, silent, leaving = (Presence("payments") for _ in range(3))
    assert one.heard(silent.beat(), 1.0)
    assert not one.heard(silent.beat(), 1.5)
    assert one.heard(leaving.beat(), 9.0)

    one.forget_silent(9.0)
    assert one.heard(leaving.goodbye(), 9.1)

    subjects = {f"orders.p{number}" for number in range(50)}
    assert one.share(sorted(subjects)) == subjects


def test_members_with_other_topics_meet_elsewhere() -> None:
    assert Presence("payments of orders").subject != Presence("payments of mails").subject


def test_names_that_look_alike_to_the_server_stay_different() -> None:
    names = [durable_name("a.b", "c"), durable_name("a_b", "c"), durable_name("a", "b.c")]

    assert len(set(names)) == 3
    assert all(set("./*> \\").isdisjoint(name) for name in names)
    assert len(durable_name("x" * 500, "y" * 500)) < 100
