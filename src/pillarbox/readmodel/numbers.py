"""What a column keeps of a number: the database rounds what has too many places, in silence."""

from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from sqlalchemy import Column, Float, Integer, Numeric, TypeDecorator
from sqlalchemy.types import TypeEngine

_WAYS: Final = (
    "process_bind_param", "process_result_value", "bind_processor", "result_processor",
)  # fmt: skip


def is_number(column: Column[Any]) -> bool:
    """Tell whether the database keeps a number in a column."""
    return isinstance(kept_as(column), Integer | Numeric | Float)


def kept_as(column: Column[Any]) -> TypeEngine[Any]:
    """Return the type as the database has it."""
    kind = column.type
    while isinstance(kind, TypeDecorator):
        kind = kind.impl_instance
    return kind


def converts(column: Column[Any]) -> bool:
    """Tell whether a type makes something else of what the database keeps."""
    kind = column.type
    while isinstance(kind, TypeDecorator):
        if any(getattr(type(kind), name) is not getattr(TypeDecorator, name) for name in _WAYS):
            return True
        kind = kind.impl_instance
    return False


def places_of(column: Column[Any]) -> int | None:
    """Return how many places a number may have behind the point; None where any is kept."""
    kind = kept_as(column)
    if isinstance(kind, Integer):
        return 0
    scale: int | None = getattr(kind, "scale", None)
    return scale


def fits(number: float | Decimal, places: int | None) -> bool:
    """Tell whether a number is kept as it is."""
    if places is None or isinstance(number, int):
        return True
    exact = number if isinstance(number, Decimal) else Decimal(str(number))
    return exact.is_finite() and (Fraction(exact) * 10**places).denominator == 1
