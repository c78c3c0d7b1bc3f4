"""Ids of inbound messages, whatever producers send; and what tells contents apart."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import JsonText, content_id
from pillarbox.errors import InvalidMessageId, PayloadNotJson
from pillarbox.inbox.identity import HASHED_PREFIX, content_hash, stored_id


class Kind(StrEnum):
    PAID = "paid-1"


@dataclass(frozen=True)
class Total:
    amount: Decimal
    currency: str


@pytest.mark.parametrize(
    "message_id",
    ["evt-001", "x" * 255, "ß" * 255, " spaces kept ", "a\tb", "Abc", "sha256", "🙂", "\u202e"],
)
def test_an_id_of_up_to_255_characters_is_kept_as_it_is(message_id: str) -> None:
    assert stored_id(message_id) == message_id


def test_numbers_uuids_and_enums_are_kept_as_their_text() -> None:
    uuid = UUID("01890a5d-ac96-774b-bcce-b302099a8057")

    assert [stored_id(17), stored_id(uuid), stored_id(Kind.PAID)] == ["17", str(uuid), "paid-1"]
    assert type(stored_id(Kind.PAID)) is str


def test_a_longer_id_is_hashed_under_a_marked_prefix() -> None:
    long_id = "x" * 256

    assert stored_id(long_id) == f"sha256:{sha256(long_id.encode()).hexdigest()}"
    assert len(stored_id("x" * 100_000)) == 71
    assert stored_id(long_id) != stored_id("x" * 257)


@pytest.mark.parametrize("message_id", ["a\x00b", "\ud800", "x" * 300 + "\udfff"])
def test_an_id_that_no_database_stores_is_hashed_too(message_id: str) -> None:
    assert stored_id(message_id).startswith(HASHED_PREFIX)


def test_nobody_can_name_the_place_of_a_hashed_id() -> None:
    place = stored_id("x" * 256)

    assert stored_id(place) != place


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_ids_have_one_place_only_if_they_are_equal(one: str, other: str) -> None:
    assert (stored_id(one) == stored_id(other)) == (one == other)
    assert len(stored_id(one)) <= 255


def test_an_empty_id_is_refused_by_the_name_of_its_field() -> None:
    with pytest.raises(InvalidMessageId, match=r"message_id is empty; .*content_id") as refused:
        stored_id("")

    assert (refused.value.field, refused.value.code) == ("message_id", "invalid-message-id")


@pytest.mark.parametrize("message_id", [None, b"bytes", 1.5, True, ["a"], object()])
def test_what_is_no_id_is_refused_by_its_type(message_id: Any) -> None:
    with pytest.raises(InvalidMessageId, match=rf"has the type {type(message_id).__name__}"):
        stored_id(message_id)


def test_a_content_id_is_a_sha_256_of_routing_key_and_body() -> None:
    made = content_id("order.created", b'{"order_id":"1"}')

    assert len(made) == 64
    assert made == content_id("order.created", b'{"order_id":"1"}') == stored_id(made)
    assert made != content_id("order.created", b'{"order_id": "1"}')
    assert content_id("ab", b"c") != content_id("a", b"bc")


def test_a_content_id_is_the_same_in_every_release() -> None:
    """Inboxes know old ones: `printf '\\0\\0\\0\\rorder.created{"order_id":"1"}' | sha256sum`."""
    made = content_id("order.created", b'{"order_id":"1"}')

    assert made == "28b5d8f655f1e119083865ab2469cabf6e28fe198dda341c8281ac1633f87306"


def test_bytes_are_hashed_as_they_came() -> None:
    body = b'{"b": 1, "a": 2}'

    assert content_hash(body) == sha256(body).hexdigest()
    assert content_hash(bytearray(body)) == content_hash(memoryview(body)) == content_hash(body)
    assert content_hash(JsonText(body.decode())) == content_hash(body)
    assert content_hash(b"") is not None


def test_equal_values_have_equal_hashes_whatever_the_order_of_their_keys() -> None:
    assert content_hash({"a": 1, "b": {"c": 2, "d": 3}}) == content_hash(
        {"b": {"d": 3, "c": 2}, "a": 1}
    )
    assert content_hash(Total(Decimal("9.90"), "EUR")) == content_hash(
        {"currency": "EUR", "amount": "9.90"}
    )


@pytest.mark.parametrize("other", [{"n": 2}, {"n": 1.5}, {"n": "1"}, {"m": 1}, [1], {}, 1, "1"])
def test_other_values_have_other_hashes(other: Any) -> None:
    assert content_hash({"n": 1}) != content_hash(other)


def test_no_content_has_no_hash() -> None:
    assert content_hash(None) is None


def test_a_content_that_json_cannot_carry_is_refused_with_its_path() -> None:
    with pytest.raises(PayloadNotJson, match=r"payload\.price"):
        content_hash({"price": float("nan")})
