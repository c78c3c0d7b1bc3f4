"""Pauses and rates: who is passed over, and how much may be let go of."""

from pillarbox.event.envelope import MessageEnvelope
from pillarbox.projector.store import Control, OutboxEvent
from pillarbox.projector.throttle import Throttle


def events(count: int, tenant_id: str = "acme", topic: str = "orders") -> list[OutboxEvent]:
    envelope = MessageEnvelope("event", "Noted")
    return [
        OutboxEvent(n, 0, (tenant_id, "k"), topic, 0, False, False, False, 0.0, envelope)
        for n in range(count)
    ]


def throttle(*controls: Control, share: float = 1.0) -> Throttle:
    made = Throttle(share)
    made.apply(controls, 0.0)
    return made


def test_without_controls_nobody_is_passed_over() -> None:
    idle = throttle()

    assert idle.idle
    assert not idle.passed_over(0.0)
    assert not idle.everything(0.0)
    assert idle.room("orders", 0.0) == -1


def test_a_paused_tenant_is_passed_over() -> None:
    paused = throttle(Control("acme", "*", paused=True, events_per_second=None))

    assert paused.passed_over(0.0) == {"acme"}
    assert not paused.everything(0.0)


def test_a_paused_topic_is_set_aside_for_one_tenant_or_for_all() -> None:
    paused = throttle(
        Control("acme", "orders", paused=True, events_per_second=None),
        Control("*", "bills", paused=True, events_per_second=None),
    )

    assert paused.shut_topics(0.0) == {("acme", "orders"), ("*", "bills")}
    assert not paused.passed_over(0.0)


def test_a_tenant_over_its_rate_is_passed_over_until_time_has_passed() -> None:
    limited = throttle(Control("acme", "*", paused=False, events_per_second=10))

    limited.spend(events(25))

    assert limited.passed_over(0.0) == {"acme"}
    assert limited.passed_over(1.5) == {"acme"}
    assert limited.passed_over(1.6) == frozenset()


def test_a_rate_never_saves_up_more_than_a_second() -> None:
    limited = throttle(Control("acme", "*", paused=False, events_per_second=10))

    limited.spend(events(5))
    limited.passed_over(1_000.0)
    limited.spend(events(10))

    assert limited.passed_over(1_000.0) == {"acme"}


def test_a_rate_for_everything_is_spent_by_every_event() -> None:
    limited = throttle(Control("*", "*", paused=False, events_per_second=10))

    limited.spend(events(5) + events(6, "bolt", "bills"))

    assert limited.everything(0.0)
    assert not limited.everything(0.2)


def test_a_share_of_the_shards_is_a_share_of_the_rate() -> None:
    limited = throttle(Control("*", "orders", paused=False, events_per_second=10), share=0.5)

    limited.spend(events(5))

    assert limited.shut_topics(0.0) == {("*", "orders")}


def test_applied_again_a_rate_keeps_what_was_spent() -> None:
    control = Control("acme", "*", paused=False, events_per_second=10)
    limited = throttle(control)
    limited.spend(events(20))

    limited.apply([control], 0.0)

    assert limited.passed_over(0.0) == {"acme"}


def test_a_rate_that_changes_keeps_what_was_spent() -> None:
    control = Control("acme", "*", paused=False, events_per_second=10)
    limited = throttle(control)
    limited.spend(events(20))

    limited.share = 0.5
    limited.apply([control], 0.0)

    assert limited.passed_over(1.9) == {"acme"}
    assert limited.passed_over(2.2) == frozenset()


def test_a_rate_that_falls_leaves_no_more_than_a_second_of_it() -> None:
    limited = throttle(Control("*", "orders", paused=False, events_per_second=100))

    limited.apply([Control("*", "orders", paused=False, events_per_second=10)], 0.0)

    assert limited.room("orders", 0.0) == 10


def test_a_limited_tenant_is_claimed_for_as_far_as_its_rate_allows() -> None:
    limited = throttle(
        Control("acme", "*", paused=False, events_per_second=10),
        Control("bolt", "orders", paused=False, events_per_second=10),
    )

    limited.spend(events(4))

    assert limited.quotas(0.0) == {"acme": 6}


def test_who_is_over_a_rate_is_claimed_for_again_when_it_is_worth_a_claim() -> None:
    limited = throttle(Control("acme", "*", paused=False, events_per_second=1_000))

    limited.spend(events(1_000))

    assert limited.passed_over(0.001) == {"acme"}
    assert limited.passed_over(0.099) == {"acme"}
    assert limited.passed_over(0.101) == frozenset()


def test_the_limit_of_a_tenant_does_not_bound_what_others_let_go_of() -> None:
    limited = throttle(
        Control("acme", "orders", paused=False, events_per_second=1),
        Control("bolt", "orders", paused=True, events_per_second=7),
        Control("cole", "bills", paused=False, events_per_second=1),
    )

    assert limited.room("orders", 0.0) == -1
    assert limited.rooms_apart("orders", 0.0) == {"acme": 1, "bolt": 0}


def test_room_is_what_the_topic_may_still_send() -> None:
    limited = throttle(Control("*", "orders", paused=False, events_per_second=10))

    limited.spend(events(4))

    assert limited.room("orders", 0.0) == 6
    assert limited.room("bills", 0.0) == -1


def test_room_is_never_any_number_because_a_rate_is_overspent() -> None:
    limited = throttle(
        Control("acme", "orders", paused=False, events_per_second=100),
        Control("*", "orders", paused=False, events_per_second=10),
    )

    limited.spend(events(11))

    assert limited.room("orders", 0.0) == 0


def test_a_share_below_one_event_a_second_lets_one_go_now_and_then() -> None:
    limited = throttle(Control("*", "orders", paused=False, events_per_second=1), share=0.25)

    assert limited.room("orders", 0.0) == 1
    limited.spend(events(1))
    assert limited.room("orders", 2.9) == 0
    assert limited.room("orders", 3.1) == 1


def test_a_tenant_over_its_rate_leaves_the_room_of_others_alone() -> None:
    limited = throttle(
        Control("acme", "orders", paused=False, events_per_second=1),
        Control("*", "orders", paused=False, events_per_second=100),
    )

    limited.spend(events(5))

    assert limited.shut_topics(0.0) == {("acme", "orders")}
    assert limited.room("orders", 0.0) == 95


def test_a_question_with_an_earlier_time_changes_nothing() -> None:
    limited = throttle(Control("*", "orders", paused=False, events_per_second=100))
    limited.spend(events(92))
    assert not limited.shut_topics(0.0)

    earlier = limited.room("orders", -1.2)

    assert earlier == 8
    assert not limited.shut_topics(0.0)


def test_of_a_tenant_whose_events_are_all_set_aside_more_is_claimed_until_one_goes() -> None:
    limited = throttle(Control("acme", "*", paused=False, events_per_second=1))
    asked = []

    for _ in range(8):
        asked.append(limited.quotas(0.0)["acme"])
        limited.learn(events(asked[-1]), [], 0.0)
    limited.learn(events(64), events(1), 0.0)

    assert asked == [1, 2, 4, 8, 16, 32, 64, 64]
    assert limited.quotas(0.0)["acme"] == 1


def test_a_tenant_that_has_spent_its_rate_is_not_claimed_for_whatever_was_set_aside() -> None:
    limited = throttle(Control("acme", "*", paused=False, events_per_second=1))
    limited.learn(events(5), [], 0.0)

    limited.spend(events(1))

    assert limited.quotas(0.0) == {"acme": 0}


def test_what_was_set_aside_long_ago_lets_no_more_be_claimed_than_may_go() -> None:
    """When the key of a slow tenant was let go of, 64 of its events went at once."""
    limited = throttle(Control("acme", "*", paused=False, events_per_second=1))
    for _ in range(6):
        limited.learn(events(1), [], 0.0)

    asked = [limited.quotas(at)["acme"] for at in (0.9, 1.1)]
    limited.learn(events(1), [], 1.1)

    assert asked == [64, 1]
    assert limited.quotas(1.2)["acme"] == 2
