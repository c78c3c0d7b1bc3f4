"""Whatever is accepted arrives unchanged; whatever is refused is refused by InvalidEvent."""

import json
import math
from base64 import b64encode
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillarbox.errors import InvalidEvent
from pillarbox.event import payload as payload_module
from pillarbox.event.encoders import DEFAULT_ENCODERS, PayloadLimits
from pillarbox.event.payload import check_json_text, encode_json
from tests.event.bad_input import BAD_VALUES

LIMITS = PayloadLimits()
thorough = settings(max_examples=300, database=None)

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(-(2**63 - 1), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
rich = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False),
    st.datetimes(timezones=st.just(UTC)),
    st.dates(),
    st.times(),
    st.uuids(),
    st.binary(max_size=20),
)
leaves = st.none() | st.booleans() | numbers | texts | rich


def containers(children: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return (
        st.lists(children, max_size=5)
        | st.dictionaries(texts, children, max_size=5)
        | st.tuples(children, children)
    )


legal = st.recursive(leaves, containers, max_leaves=30).filter(lambda value: value is not None)
# Drawn by number, because Hypothesis prints what it samples from and some of it has no repr.
poison = st.integers(0, len(BAD_VALUES) - 1).map(lambda number: BAD_VALUES[number][1])
junk = st.recursive(
    leaves
    | poison
    | st.text()
    | st.integers()
    | st.floats()
    | st.decimals()
    | st.sets(st.integers())
    | st.datetimes(),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.text() | st.integers() | st.none(), children, max_size=4)
    ),
    max_leaves=15,
)


def normal(value: object) -> object:
    """Say what JSON should hold, written apart from the code under test."""
    match value:
        case dict():
            plain: object = {key: normal(item) for key, item in value.items()}
        case list() | tuple():
            plain = [normal(item) for item in value]
        case Decimal() | UUID():
            plain = str(value)
        case datetime() | date() | time():
            plain = value.isoformat()
        case bytes():
            plain = b64encode(value).decode()
        case _:
            plain = value
    return plain


@thorough
@given(legal)
def test_an_accepted_payload_reads_back_as_the_normal_value(value: object) -> None:
    text = encode_json(value)

    assert json.loads(text) == normal(value)


@thorough
@given(legal)
def test_a_second_pass_changes_no_byte(value: object) -> None:
    text = encode_json(value)

    assert encode_json(json.loads(text)) == text
    assert check_json_text(text) == text


@thorough
@given(legal)
def test_the_exact_way_writes_what_the_fast_way_writes(value: object) -> None:
    assert payload_module._encode_exactly(value, LIMITS, DEFAULT_ENCODERS) == encode_json(value)


@thorough
@given(legal, poison, st.booleans())
def test_poison_anywhere_refuses_the_whole_payload(
    value: object, bad: object, listed: bool
) -> None:
    holder = [value, bad] if listed else {"good": value, "bad": bad}

    with pytest.raises(InvalidEvent) as caught:
        encode_json(holder)

    assert caught.value.field.startswith("payload[1]" if listed else "payload.bad")


@thorough
@given(junk)
def test_junk_is_accepted_faithfully_or_refused_by_invalid_event(value: object) -> None:
    with suppress(InvalidEvent):
        assert json.loads(encode_json(value)) == normal(value)


@thorough
@given(st.floats(), st.lists(st.none() | st.floats()))
def test_a_float_is_never_turned_into_null(number: float, others: list[float | None]) -> None:
    values = [number, *others]
    finite = all(item is None or math.isfinite(item) for item in values)

    if finite:
        assert json.loads(encode_json(values)) == values
    else:
        with pytest.raises(InvalidEvent):
            encode_json(values)


json_like = st.text(st.sampled_from('{}[]:,"\\ue0123456789-+.aNn tfrls\n\0é\ud800'), max_size=25)
written = st.one_of(
    st.text(),
    json_like,
    st.binary(max_size=30),
    legal.map(normal).map(json.dumps),
    st.from_regex(r"\[-?[0-9]{1,25}(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,6})?\]", fullmatch=True),
)


def strict_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


@thorough
@given(written)
def test_json_text_is_kept_byte_for_byte_or_refused(text: str | bytes) -> None:
    with suppress(InvalidEvent):
        kept = check_json_text(text)

        assert kept == (text if isinstance(text, str) else text.decode())
        value = json.loads(kept, object_pairs_hook=strict_pairs)
        assert encode_json(value)
