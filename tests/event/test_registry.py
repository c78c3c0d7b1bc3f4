import attrs
import pydantic
import pytest

from pillarbox import DomainEvent, EventRegistry
from pillarbox.errors import InvalidConfig, InvalidEvent
from pillarbox.event.registry import Payload


class OrderCreated(DomainEvent):
    schema_version = 3
    order_id: str
    currency: str
    channel: str


@pytest.fixture
def registry() -> EventRegistry:
    """A registry that knows two steps up to the current version."""
    made = EventRegistry()
    made.event(OrderCreated)

    @made.upcaster("OrderCreated", from_version=1)
    def add_currency(payload: Payload) -> Payload:
        return {**payload, "currency": "EUR"}

    @made.upcaster("OrderCreated", from_version=2)
    def add_channel(payload: Payload) -> Payload:
        return {**payload, "channel": f"web-{payload['currency']}"}

    return made


def test_a_registered_class_is_found_by_its_name_on_the_wire(registry: EventRegistry) -> None:
    assert registry.event_class("OrderCreated") is OrderCreated
    assert registry.event_class("OrderPaid") is None


def test_a_class_is_never_found_by_an_import_path(registry: EventRegistry) -> None:
    path = f"{OrderCreated.__module__}.{OrderCreated.__qualname__}"

    assert registry.event_class(path) is None


def test_the_decorator_returns_the_class_and_may_be_repeated(registry: EventRegistry) -> None:
    assert registry.event(OrderCreated) is OrderCreated


def test_two_classes_under_one_name_are_refused_with_the_remedy(registry: EventRegistry) -> None:
    class Other(DomainEvent):
        event_type = "OrderCreated"
        order_id: str

    with pytest.raises(InvalidConfig, match="set event_type on one of the two classes"):
        registry.event(Other)


def test_pydantic_models_and_attrs_classes_can_be_registered(registry: EventRegistry) -> None:
    @registry.event
    class Paid(pydantic.BaseModel):
        order_id: str

    @registry.event
    @attrs.frozen
    class Shipped:
        order_id: str

    assert registry.event_class("Paid") is Paid
    assert registry.event_class("Shipped") is Shipped


def test_an_old_payload_is_brought_to_the_current_version_step_by_step(
    registry: EventRegistry,
) -> None:
    assert registry.upcast("OrderCreated", 1, {"order_id": "o-1"}) == {
        "order_id": "o-1",
        "currency": "EUR",
        "channel": "web-EUR",
    }


def test_a_payload_enters_the_steps_at_its_own_version(registry: EventRegistry) -> None:
    brought = registry.upcast("OrderCreated", 2, {"order_id": "o-1", "currency": "CHF"})

    assert brought == {"order_id": "o-1", "currency": "CHF", "channel": "web-CHF"}


def test_a_payload_of_the_current_version_stays_as_it_is(registry: EventRegistry) -> None:
    payload = {"order_id": "o-1", "currency": "EUR", "channel": "web"}

    assert registry.upcast("OrderCreated", 3, payload) is payload


def test_a_payload_from_newer_code_is_refused(registry: EventRegistry) -> None:
    with pytest.raises(InvalidEvent, match=r"4 of OrderCreated is newer than 3"):
        registry.upcast("OrderCreated", 4, {})


def test_a_missing_step_is_named(registry: EventRegistry) -> None:
    with pytest.raises(InvalidEvent, match="0 of OrderCreated has no upcaster to 1"):
        registry.upcast("OrderCreated", 0, {})


def test_an_unknown_name_is_refused(registry: EventRegistry) -> None:
    with pytest.raises(InvalidEvent, match="'OrderPaid' is not registered"):
        registry.upcast("OrderPaid", 1, {})


def test_two_steps_from_one_version_are_refused(registry: EventRegistry) -> None:
    with pytest.raises(InvalidConfig, match="keep one step for each version"):
        registry.upcaster("OrderCreated", from_version=1)(lambda payload: payload)
