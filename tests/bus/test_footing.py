"""Kafka's producer: which messages must be stored before others of their key are sent."""

from pillarbox.bus.kafka.footing import Footing
from pillarbox.event.envelope import MessageEnvelope


def message(key: str | None, topic: str = "shop.order") -> MessageEnvelope:
    return MessageEnvelope("1", "Paid", topic=topic, key=key)


def test_the_first_message_of_each_key_goes_before_the_others() -> None:
    footing = Footing({"shop.order": 2})

    batch = [message("a"), message("a"), message("b"), message(None), message("b")]

    assert footing.firsts(batch) == [0, 2]


def test_a_key_whose_message_was_stored_is_known() -> None:
    footing = Footing({"shop.order": 2})
    footing.stored("shop.order", "a", 1)

    assert footing.firsts([message("a"), message("b")]) == [1]


def test_a_topic_whose_partitions_have_all_stored_something_needs_no_more_care() -> None:
    footing = Footing({"shop.order": 2, "shop.paid": 2})
    footing.stored("shop.order", "a", 0)
    footing.stored("shop.order", "b", 1)

    assert footing.firsts([message("c"), message("c")]) == []
    assert footing.firsts([message("c"), message("c", "shop.paid")]) == [1]


def test_a_topic_whose_partitions_are_not_known_never_gets_firm() -> None:
    footing = Footing({})
    footing.stored("shop.order", "a", 0)

    assert footing.firsts([message("b")]) == [0]
