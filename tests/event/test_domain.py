import dataclasses
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

import attrs
import pydantic
import pytest

from pillarbox import DomainEvent
from pillarbox.errors import InvalidConfig, InvalidEvent
from pillarbox.event.domain import class_setting, event_type_of, schema_version_of
from pillarbox.event.payload import encode_json, event_fields


class OrderCreated(DomainEvent):
    aggregate_type = "order"
    order_id: str
    total: Decimal = Decimal(0)


@dataclass(frozen=True)
class OrderPaid(DomainEvent):
    order_id: str


class PydanticPaid(pydantic.BaseModel):
    aggregate_type: ClassVar[str] = "order"
    order_id: str
    total: Decimal


@attrs.frozen
class AttrsPaid:
    aggregate_type: ClassVar[str] = "order"
    order_id: str
    total: Decimal


def test_an_event_without_the_decorator_is_a_frozen_dataclass() -> None:
    event = OrderCreated("o-1", total=Decimal("9.90"))

    assert dataclasses.asdict(event) == {"order_id": "o-1", "total": Decimal("9.90")}
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.order_id = "o-2"  # type: ignore[misc]  # the point of the test


def test_an_event_with_the_decorator_is_the_same_kind_of_dataclass() -> None:
    event = OrderPaid("o-1")

    assert event == OrderPaid(order_id="o-1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.order_id = "o-2"  # type: ignore[misc]  # the point of the test


def test_events_with_equal_fields_are_equal_and_hash_alike() -> None:
    assert OrderCreated("o-1") == OrderCreated("o-1", Decimal(0))
    assert hash(OrderCreated("o-1")) == hash(OrderCreated("o-1"))
    assert OrderCreated("o-1") != OrderCreated("o-2")


def test_a_missing_field_is_refused_where_the_event_is_made() -> None:
    with pytest.raises(TypeError, match="order_id"):
        OrderCreated()  # type: ignore[call-arg]  # the point of the test


def test_what_a_class_sets_about_itself_is_no_field_of_its_events() -> None:
    assert event_fields(OrderCreated("o-1")) == {"order_id": "o-1", "total": Decimal(0)}
    assert class_setting(OrderCreated, "aggregate_type") == "order"


def test_a_derived_event_has_the_fields_of_its_base_first_with_and_without_decorator() -> None:
    class Shipped(OrderCreated):
        parcel: str = "p-1"

    @dataclass(frozen=True)
    class Returned(Shipped):
        reason: str = "broken"

    names = [field.name for field in dataclasses.fields(Returned("o-1"))]

    assert names == ["order_id", "total", "parcel", "reason"]
    assert Shipped("o-1", Decimal(1), "p-2").parcel == "p-2"


def test_the_name_on_the_wire_is_the_class_name_unless_the_class_sets_another() -> None:
    class Renamed(DomainEvent):
        event_type = "order.renamed.v1"
        order_id: str

    assert event_type_of(OrderCreated) == "OrderCreated"
    assert event_type_of(Renamed) == "order.renamed.v1"


def test_the_schema_version_is_one_unless_the_class_sets_another() -> None:
    class Newer(DomainEvent):
        schema_version = 3
        order_id: str

    assert schema_version_of(OrderCreated) == 1
    assert schema_version_of(Newer) == 3


@pytest.mark.parametrize("kind", [PydanticPaid, AttrsPaid])
def test_pydantic_models_and_attrs_classes_are_events_as_well(
    kind: type[PydanticPaid] | type[AttrsPaid],
) -> None:
    event = kind(order_id="o-1", total=Decimal("9.90"))

    assert encode_json(event_fields(event)) == '{"order_id":"o-1","total":"9.90"}'
    assert class_setting(kind, "aggregate_type") == "order"
    assert event_type_of(kind) == kind.__name__


def test_a_mapping_is_an_event_without_a_class() -> None:
    assert event_fields({"order_id": "o-1"}) == {"order_id": "o-1"}


@pytest.mark.parametrize("thing", ["text", 7, object(), ["a", "list"]])
def test_an_object_without_fields_is_refused_with_what_to_pass_instead(thing: object) -> None:
    with pytest.raises(InvalidEvent, match="has no fields to send; pass a DomainEvent"):
        event_fields(thing)


def test_a_field_named_like_a_setting_of_the_class_is_refused() -> None:
    with pytest.raises(
        InvalidConfig, match=r"Renamed\.topic is a field with the name of a setting"
    ):
        type("Renamed", (DomainEvent,), {"__annotations__": {"topic": str}})


def test_a_setting_may_be_annotated_as_what_it_is() -> None:
    class Placed(DomainEvent):
        topic: ClassVar[str | None] = "orders.placed"
        order_id: str

    assert Placed("o-1").topic == "orders.placed"
