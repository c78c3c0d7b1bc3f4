"""A payload becomes the model that a handler names, or a reason that names the field."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from pillarbox import DomainEvent
from pillarbox.consumer.conversion import Misfit
from pillarbox.consumer.models import converter
from pillarbox.errors import InvalidConfig
from pillarbox.event.payload import decode_json, encode_json

UID = UUID("0190c0de-0000-7000-8000-000000000001")
OrderId = NewType("OrderId", str)
T = TypeVar("T")


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Sku(str):
    __slots__ = ()


@dataclass(frozen=True)
class Line:
    sku: Sku
    price: Decimal
    count: int = 1


class OrderCreated(DomainEvent):
    aggregate_type = "order"
    order_id: OrderId
    total: Decimal
    lines: list[Line]
    at: datetime
    buyer: UUID | None = None
    colour: Colour | None = None


ORDER = OrderCreated(
    OrderId("o-1"),
    Decimal("9.90"),
    [Line(Sku("a"), Decimal("9.90"), 2)],
    datetime(2026, 1, 2, tzinfo=UTC),
    UID,
    Colour.RED,
)


def sent(event: object) -> Any:
    """Return a payload as a consumer decodes it."""
    return decode_json(encode_json(event))


def problem(kind: Any, payload: object) -> tuple[str, str]:
    with pytest.raises(Misfit) as caught:
        converter(kind)(payload)
    return caught.value.code, str(caught.value)


def test_an_event_becomes_its_class_again() -> None:
    assert converter(OrderCreated)(sent(ORDER)) == ORDER


def test_fields_that_the_model_does_not_know_are_ignored() -> None:
    assert converter(Line)({"sku": "a", "price": "1", "new": {"a": 1}}) == Line(
        Sku("a"), Decimal(1)
    )


def test_a_missing_field_is_named_with_its_path() -> None:
    payload = sent(ORDER)
    del payload["lines"][0]["price"]

    assert problem(OrderCreated, payload) == ("missing-field", "payload.lines[0].price is missing")


def test_a_wrong_field_is_named_and_its_value_is_not() -> None:
    payload = {**sent(ORDER), "total": "secret"}

    assert problem(OrderCreated, payload) == (
        "invalid-field",
        "payload.total is no decimal number",
    )


class PydanticLine(BaseModel):
    sku: str
    price: Decimal = Field(gt=0)


class PydanticOrder(BaseModel):
    model_config = ConfigDict(strict=True)

    order_id: str
    lines: list[PydanticLine]
    at: datetime
    buyer: UUID | None = None


def test_a_pydantic_model_reads_json_even_when_it_is_strict() -> None:
    found = converter(PydanticOrder)(sent(ORDER))

    assert (found.at, found.buyer, found.lines[0].price) == (ORDER.at, UID, Decimal("9.90"))


def test_a_pydantic_model_names_the_field_and_not_the_value() -> None:
    lacking, wrong = sent(ORDER), sent(ORDER)
    del lacking["lines"][0]["price"]
    wrong["lines"][0]["price"] = "-99"

    assert problem(PydanticOrder, lacking) == (
        "missing-field",
        "payload.lines[0].price is missing",
    )
    assert problem(PydanticOrder, wrong) == (
        "invalid-field",
        "payload.lines[0].price is refused as greater_than",
    )
    assert problem(PydanticOrder, None)[0] == "invalid-field"


@attrs.define
class AttrsLine:
    sku: str
    price: Decimal
    _count: int = 1


@attrs.frozen
class AttrsOrder:
    order_id: str
    lines: list[AttrsLine]
    note: str | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.max_len(3)))  # fmt: skip


def test_an_attrs_class_is_filled_by_its_names() -> None:
    order = AttrsOrder("o-1", [AttrsLine("a", Decimal("9.90"), 2)])

    assert converter(AttrsOrder)(sent(order)) == order


def test_a_class_that_refuses_its_values_is_named_without_them() -> None:
    payload = {"order_id": "o-1", "lines": [], "note": "secret"}

    assert problem(AttrsOrder, payload) == (
        "invalid-field",
        "payload is refused by AttrsOrder (ValueError)",
    )
    assert problem(AttrsOrder, {"order_id": "o-1"}) == (
        "missing-field",
        "payload.lines is missing",
    )


class TypedOrder(TypedDict, total=False):
    order_id: str
    total: Decimal


class Needed(TypedDict):
    order_id: str


def test_a_typed_dict_has_its_own_fields_only() -> None:
    assert converter(TypedOrder)({"order_id": "a", "total": "1.5", "new": 1}) == {
        "order_id": "a",
        "total": Decimal("1.5"),
    }
    assert converter(TypedOrder)({}) == {}
    assert problem(Needed, {}) == ("missing-field", "payload.order_id is missing")


@pytest.mark.parametrize("kind", [dict, dict[str, Any], Mapping[str, Any], Any, object])
def test_a_plain_mapping_is_given_as_it_is(kind: Any) -> None:
    assert converter(kind)({"a": [1]}) == {"a": [1]}


class Place(NamedTuple):
    x: float
    y: float = 0.0


@dataclass
class Tree:
    name: str
    children: "list[Tree]" = field(default_factory=list)


@dataclass
class Page(Generic[T]):
    items: list[T]


@dataclass
class WithInitVar:
    size: InitVar[Decimal]

    def __post_init__(self, size: Decimal) -> None:
        self.doubled = size * 2


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        (Place, {"x": 1}, Place(1.0)),
        (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree("a", [Tree("b")])),
        (Page[int], {"items": [1, "a"]}, Page([1, "a"])),
        (Level, 3, Level.HIGH),
        (Colour | None, None, None),
        (OrderId, "a", "a"),
        (Annotated[int, "a note"], 1, 1),
        (Literal["a", 1], 1, 1),
        (int | str, "5", "5"),
        (Decimal | str, "five", "five"),
        (Line | Place, {"x": 1.0}, Place(1.0)),
        (float, 1, 1.0),
        (Decimal, 0.1, Decimal("0.1")),
        (Decimal, 7, Decimal(7)),
        (date, "2026-01-02", date(2026, 1, 2)),
        (time, "03:04:05", time(3, 4, 5)),
        (timedelta, 1.5, timedelta(seconds=1.5)),
        (bytes, "AAE=", b"\x00\x01"),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2], (1, 2)),
        (set[str], ["a", "a"], {"a"}),
        (frozenset[UUID], [str(UID)], frozenset({UID})),
        (Sequence[Decimal], ["1"], [Decimal(1)]),
        (dict[UUID, list[Colour]], {str(UID): ["red"]}, {UID: [Colour.RED]}),
    ],
)
def test_values_of_json_become_values_of_python(kind: Any, payload: Any, expected: Any) -> None:
    found = converter(kind)(payload)

    assert found == expected
    assert type(found) is type(expected)


def test_a_field_for_the_constructor_alone_is_passed_to_it() -> None:
    assert converter(WithInitVar)({"size": "2"}).doubled == Decimal(4)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (str, 1), (int, True), (int, 1.0), (int, "1"), (float, True), (float, "1"), (bool, 1),
        (Decimal, "NaN"), (Decimal, True), (Decimal, None), (UUID, "x"), (UUID, 1),
        (datetime, "2026-01-02T03:04:05"), (datetime, "soon"), (date, "2026-13-01"), (time, "25:00"),
        (timedelta, "1"), (timedelta, 1e300), (bytes, "?"), (Colour, "green"), (Colour, []),
        (Literal["a"], "b"), (Literal[1], True), (list[int], "1"), (list[int], {"0": 1}),
        (tuple[int, str], [1]), (set[Any], [{}]), (dict[str, int], []), (dict[str, int], {"a": "b"}),
        (Line, None), (Line, []), (Place, {"x": "1"}), (int | None, "a"), (type(None), 0),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(kind: Any, payload: Any) -> None:
    code, text = problem(kind, payload)

    assert code == "invalid-field"
    assert text.startswith("payload")


class Unmodelled:
    pass


@pytest.mark.parametrize("kind", [Unmodelled, complex, "OrderCreated", list[Unmodelled]])
def test_a_type_that_nothing_becomes_is_refused_at_once(kind: Any) -> None:
    with pytest.raises(InvalidConfig, match="is no model that a payload can become"):
        converter(kind)


def test_a_model_with_a_name_that_is_not_found_is_refused_at_once() -> None:
    @dataclass
    class Lost:
        order: "Nowhere"  # type: ignore[name-defined]  # noqa: F821 - that is the point

    with pytest.raises(InvalidConfig, match="names 'Nowhere', which is not found"):
        converter(Lost)


KINDS = [OrderCreated, Line, PydanticOrder, AttrsOrder, TypedOrder, Needed, Place, Tree, Colour,
         list[Line], dict[UUID, Decimal], set[Any], datetime | None, WithInitVar, timedelta]  # fmt: skip
names = st.sampled_from(["sku", "price", "order_id", "total", "lines", "at", "x", "children"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5),
)  # fmt: skip


@settings(max_examples=500, database=None)
@given(payload=values, kind=st.sampled_from(KINDS))
def test_no_payload_raises_anything_else(payload: Any, kind: Any) -> None:
    with suppress(Misfit):
        converter(kind)(payload)
