import pytest

from pillarbox import MessageEnvelope
from pillarbox.errors import PayloadNotJson


def test_an_envelope_needs_no_more_than_an_id_a_type_and_a_payload() -> None:
    envelope = MessageEnvelope(event_id="e-1", event_type="OrderCreated", payload={"total": "9.90"})

    assert (envelope.event_id, envelope.event_type) == ("e-1", "OrderCreated")
    assert envelope.tenant_id == "default"
    assert envelope.content_type == "application/json"
    assert envelope.headers == {}


def test_the_body_of_a_payload_is_its_json() -> None:
    envelope = MessageEnvelope("e-1", "OrderCreated", {"name": "Zoë", "items": [1, 2]})

    assert envelope.body() == '{"name":"Zoë","items":[1,2]}'.encode()


def test_stored_bytes_are_sent_as_they_are() -> None:
    envelope = MessageEnvelope("e-1", "OrderCreated", payload={"a": 1}, data=b'{ "a": 1.0 }')

    assert envelope.body() == b'{ "a": 1.0 }'


def test_a_payload_of_bytes_is_the_body() -> None:
    envelope = MessageEnvelope("e-1", "Photo", payload=b"\x89PNG", content_type="image/png")

    assert envelope.body() == b"\x89PNG"


def test_an_envelope_without_content_is_a_tombstone() -> None:
    assert MessageEnvelope("e-1", "OrderDeleted").body() is None


def test_empty_bytes_are_content_and_no_tombstone() -> None:
    assert MessageEnvelope("e-1", "Pinged", data=b"").body() == b""


def test_a_payload_that_json_cannot_carry_is_refused() -> None:
    with pytest.raises(PayloadNotJson, match=r"payload\.total is NaN"):
        MessageEnvelope("e-1", "OrderCreated", {"total": float("nan")}).body()


def test_an_envelope_does_not_change() -> None:
    envelope = MessageEnvelope("e-1", "OrderCreated")

    with pytest.raises(AttributeError):
        envelope.topic = "orders.order"  # type: ignore[misc]  # the point of the test
