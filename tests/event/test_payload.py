"""Payloads are written as JSON text unchanged, or refused where they are recorded."""

import inspect
import json
import math
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Self
from uuid import UUID

import attrs
import pytest
from pydantic import BaseModel, RootModel

from pillarbox.errors import InvalidConfig, InvalidEvent, PayloadTooDeep
from pillarbox.event import payload as payload_module
from pillarbox.event.encoders import DEFAULT_ENCODERS, Encoders, PayloadLimits
from pillarbox.event.payload import byte_length, check_json_text, encode_json, event_fields
from tests.event.bad_input import BAD_INPUT, SECRET, BadInput, nested

ID = UUID("0190a0b0-0000-7000-8000-000000000001")


class Colour(Enum):
    RED = "red"
    MIXED = (1, "two")


class Size(IntEnum):
    BIG = 3


class Mood(StrEnum):
    GOOD = "good"


class Code(str, Enum):  # noqa: UP042 - a mixed-in enum, whose value may differ from its text
    def __new__(cls, text: str, number: int) -> Self:
        member = str.__new__(cls, text)
        member._value_ = number
        return member

    A = ("a", 7)


class Name(str):
    __slots__ = ()


class Ratio(float):
    pass


class Odd(dict[str, int]):
    def items(self) -> Any:
        return [("not", 0)]


@dataclass(frozen=True, slots=True)
class Line:
    kind: ClassVar[str] = "not a field"
    sku: str
    price: Decimal


@attrs.frozen
class Address:
    city: str
    since: date


class Customer(BaseModel):
    name: str
    lines: list[Line]
    joined: datetime


def refusal(call: Callable[[], object]) -> InvalidEvent:
    with pytest.raises(InvalidEvent) as caught:
        call()
    return caught.value


@pytest.mark.parametrize(
    "bad", BAD_INPUT, ids=[bad.name.encode("unicode_escape").decode() for bad in BAD_INPUT]
)
def test_bad_input_is_refused_with_field_problem_and_remedy(bad: BadInput) -> None:
    with pytest.raises(bad.error) as caught:
        bad.call()

    error = caught.value
    assert isinstance(error, InvalidEvent | InvalidConfig)
    named = error.setting if isinstance(error, InvalidConfig) else error.field
    assert type(error) is bad.error
    assert named == bad.field
    assert error.problem.strip()
    assert error.remedy.strip()
    assert str(error) == f"{named} {error.problem}; {error.remedy}"
    assert SECRET not in str(error)
    str(error).encode()


def test_the_corpus_of_bad_input_has_at_least_300_cases() -> None:
    assert len({(bad.name, bad.field) for bad in BAD_INPUT}) >= 300


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ([], "[]"),
        ("", '""'),
        (0, "0"),
        (False, "false"),
        (1.5, "1.5"),
        ({"a": None}, '{"a":null}'),
        ({"a": "null"}, '{"a":"null"}'),
        ({"a": (1, 2)}, '{"a":[1,2]}'),
        ({"a": "\\u0000"}, '{"a":"\\\\u0000"}'),
        ({"a": "čau 😀"}, '{"a":"čau 😀"}'),
        ({"a": 2**53}, '{"a":9007199254740992}'),
        ({"a": 2**63 - 1, "b": -(2**63 - 1)}, '{"a":9223372036854775807,"b":-9223372036854775807}'),
        ({"a": Decimal("1.10")}, '{"a":"1.10"}'),
        ({"a": Decimal("1E+5")}, '{"a":"1E+5"}'),
        ({"a": datetime(2024, 1, 2, 3, tzinfo=UTC)}, '{"a":"2024-01-02T03:00:00+00:00"}'),
        (
            {"a": datetime(2024, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))},
            '{"a":"2024-01-02T03:00:00+02:00"}',
        ),
        ({"a": date(2024, 1, 2)}, '{"a":"2024-01-02"}'),
        ({"a": time(3, 4)}, '{"a":"03:04:00"}'),
        ({"a": ID}, f'{{"a":"{ID}"}}'),
        ({"a": b"\x00\xff"}, '{"a":"AP8="}'),
        ({"a": bytearray(b"x"), "b": memoryview(b"x")}, '{"a":"eA==","b":"eA=="}'),
        ([Colour.RED, Colour.MIXED, Size.BIG, Mood.GOOD], '["red",[1,"two"],3,"good"]'),
        (Code.A, "7"),
        ({Mood.GOOD: 1, Name("n"): 2}, '{"good":1,"n":2}'),
        (
            [Name("n"), Ratio(0.5), OrderedDict(a=1), MappingProxyType({"b": 2})],
            '["n",0.5,{"a":1},{"b":2}]',
        ),
        (Odd(yes=1), '{"yes":1}'),
        (Line("s", Decimal("2.50")), '{"sku":"s","price":"2.50"}'),
        (Address("Wien", date(2020, 1, 1)), '{"city":"Wien","since":"2020-01-01"}'),
        (
            Customer(
                name="n", lines=[Line("s", Decimal(1))], joined=datetime(2024, 1, 1, tzinfo=UTC)
            ),
            '{"name":"n","lines":[{"sku":"s","price":"1"}],"joined":"2024-01-01T00:00:00+00:00"}',
        ),
        (RootModel[list[int]]([1, 2]), "[1,2]"),
    ],
)
def test_a_value_is_written_the_same_by_the_fast_and_the_exact_way(
    value: object, text: str
) -> None:
    fast = encode_json(value)
    exact = payload_module._encode_exactly(value, PayloadLimits(), DEFAULT_ENCODERS)

    assert fast == text
    assert exact == text


def test_a_large_payload_of_many_objects_needs_no_exact_walk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> str:
        pytest.fail("the exact walk ran")

    monkeypatch.setattr(payload_module, "_encode_exactly", fail)
    lines = [{"sku": "a", "note": None, "price": 1.5, "at": datetime(2024, 1, 1, tzinfo=UTC)}] * 100

    text = encode_json({"lines": lines})

    assert len(json.loads(text)["lines"]) == 100


def test_the_same_object_twice_is_no_cycle() -> None:
    line = {"a": None}

    assert encode_json([line, line, math.pi, Line("s", Decimal(1))]).count('{"a":null}') == 2


@pytest.mark.parametrize("depth", [1, 31, 64, 200])
def test_nesting_is_allowed_up_to_the_limit_and_refused_beyond(depth: int) -> None:
    limits = PayloadLimits(depth=depth)

    assert encode_json(nested(depth), limits=limits).count("[") == depth
    assert check_json_text("[" * depth + "]" * depth, limits=limits)
    with pytest.raises(PayloadTooDeep, match=f"deeper than {depth} levels"):
        encode_json(nested(depth + 1), limits=limits)


def test_a_call_near_the_end_of_the_stack_is_refused_as_too_deep() -> None:
    needs_exact_walk = [2**60, nested(150)]
    room_for_a_hundred_frames = sys.getrecursionlimit() - len(inspect.stack(0)) - 100

    def sink(levels: int) -> str:
        if levels > 0:
            return sink(levels - 1)
        return encode_json(needs_exact_walk, limits=PayloadLimits(depth=200))

    with pytest.raises(PayloadTooDeep, match="stack"):
        sink(room_for_a_hundred_frames)


def test_big_integers_pass_when_they_are_allowed() -> None:
    limits = PayloadLimits(allow_big_int=True)

    assert encode_json({"n": 2**70, "t": "é"}, limits=limits) == f'{{"n":{2**70},"t":"é"}}'
    assert check_json_text(f"[{2**70}]", limits=limits) == f"[{2**70}]"


def test_an_integer_that_python_cannot_write_is_refused_even_when_big_ones_are_allowed() -> None:
    error = refusal(lambda: encode_json([10**5000], limits=PayloadLimits(allow_big_int=True)))

    assert error.field == "payload[0]"


def test_the_refusal_of_none_names_the_tombstone() -> None:
    assert "tombstone=True" in refusal(lambda: encode_json(None)).remedy


def test_the_refusal_of_a_big_integer_says_to_send_a_string() -> None:
    assert "string" in refusal(lambda: encode_json({"n": 2**64})).remedy


@pytest.mark.parametrize("text", ["[1e999]", "[1e-400]", "[0e131071]"])
def test_a_number_beyond_a_double_is_named_as_such(text: str) -> None:
    assert "beyond the range of a double" in refusal(lambda: check_json_text(text)).problem


def test_a_long_key_is_shortened_in_the_message() -> None:
    error = refusal(lambda: encode_json({"k" * 500: math.nan}))

    assert len(error.field) < 90


def test_an_added_encoder_is_used_for_its_type_and_its_subclasses() -> None:
    encoders = DEFAULT_ENCODERS.extended({complex: lambda value: [value.real, value.imag]})

    assert encode_json({"z": 1 + 2j}, encoders=encoders) == '{"z":[1.0,2.0]}'


@pytest.mark.parametrize(
    ("table", "value", "text"),
    [
        ({UUID: lambda value: value.hex}, ID, f'"{ID.hex}"'),
        ({Colour: lambda value: value.name}, Colour.RED, '"RED"'),
        ({Name: lambda _: "anonymous"}, Name("n"), '"anonymous"'),
        ({Line: lambda value: value.sku}, Line("s", Decimal(1)), '"s"'),
        ({Decimal: float}, Decimal("0.5"), "0.5"),
    ],
)
def test_an_added_encoder_wins_over_the_built_in_treatment(
    table: dict[type, Callable[[Any], object]], value: object, text: str
) -> None:
    encoders = DEFAULT_ENCODERS.extended(table)

    assert encode_json([value], encoders=encoders) == f"[{text}]"


def test_an_encoder_that_returns_nan_is_refused() -> None:
    encoders = DEFAULT_ENCODERS.extended({Decimal: lambda _: math.nan})

    error = refusal(lambda: encode_json({"d": Decimal(1)}, encoders=encoders))

    assert str(error).startswith("payload.d is NaN")


@pytest.mark.parametrize("result", [1 / 3j, object()])
def test_an_encoder_that_never_reaches_json_is_refused(result: object) -> None:
    encoders = DEFAULT_ENCODERS.extended({complex: lambda _: result})

    assert refusal(lambda: encode_json([1j], encoders=encoders)).field == "payload[0]"


def test_an_encoder_that_fails_is_named_by_type_and_kept_as_cause() -> None:
    def fail(_: complex) -> object:
        raise RuntimeError(SECRET)

    error = refusal(lambda: encode_json([1j], encoders=DEFAULT_ENCODERS.extended({complex: fail})))

    assert "complex" in error.problem
    assert SECRET not in str(error)
    assert isinstance(error.__cause__, RuntimeError)


def test_a_keyboard_interrupt_in_an_encoder_is_not_swallowed() -> None:
    pending = [KeyboardInterrupt()]

    def interrupted_once(value: complex) -> object:
        if pending:
            raise pending.pop()
        return value.real

    with pytest.raises(KeyboardInterrupt):
        encode_json([1j], encoders=DEFAULT_ENCODERS.extended({complex: interrupted_once}))


@pytest.mark.parametrize("kind", [str, int, float, bool, dict, list, tuple, type(None)])
def test_an_encoder_for_a_type_of_json_is_a_configuration_error(kind: type) -> None:
    with pytest.raises(InvalidConfig, match=kind.__name__):
        Encoders({kind: str})


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        " { }\n",
        '{"b":1, "a" : 1.0}',
        '{"a":1E5}',
        "[-0, 0.0, 1e-7, 1e308, 5e-324, 0e5]",
        '"\\u00e9\\/\\ud83d\\ude00"',
        '"\\\\u0000"',
        "[9223372036854775807,-9223372036854775807]",
        "0.12345678901234567890123",
        '{"a":{"x":1},"b":{"x":1}}',
        '{"a":null}',
    ],
)
def test_json_text_is_kept_as_it_was_written(text: str) -> None:
    assert check_json_text(text) == text
    assert check_json_text(text.encode()) == text


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ({"a": 1}, {"a": 1}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (Line("s", Decimal(1)), {"sku": "s", "price": Decimal(1)}),
        (Address("Wien", date(2020, 1, 1)), {"city": "Wien", "since": date(2020, 1, 1)}),
    ],
)
def test_the_fields_of_an_event_are_its_payload(event: object, fields: dict[str, object]) -> None:
    assert event_fields(event) == fields


def test_the_fields_of_a_model_are_its_dump() -> None:
    joined = datetime(2024, 1, 1, tzinfo=UTC)

    assert event_fields(Customer(name="n", lines=[], joined=joined)) == {
        "name": "n",
        "lines": [],
        "joined": joined,
    }


def test_a_model_of_a_list_has_no_fields() -> None:
    assert refusal(lambda: event_fields(RootModel[list[int]]([1]))).field == "event"


@pytest.mark.parametrize("text", ["", "abc", "é", "😀a"])
def test_the_length_in_bytes_is_that_of_utf_8(text: str) -> None:
    assert byte_length(text) == len(text.encode())
