"""What a column keeps of a number: the database rounds what has too many places, in silence."""

from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple

from sqlalchemy import REAL, Column, Double, Float, Integer, Numeric, TypeDecorator
from sqlalchemy.types import TypeEngine

Number = int | float | Decimal

_SINGLE: Final = 24
"""A column of so many bits, or fewer, keeps numbers in 32."""

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
    if isinstance(kind, Float) or not isinstance(kind, Numeric):
        return None
    # NUMERIC(10) keeps whole numbers: its scale is 0 where none is given.
    return 0 if kind.scale is None and kind.precision is not None else kind.scale


def adds_up(column: Column[Any]) -> bool:
    """Tell whether a column gives back the sum that was worked out in memory.

    One of 32 bits does not, nor does a float that is given back as a decimal.
    """
    kind = kept_as(column)
    if not isinstance(kind, Float):
        return True
    single = not isinstance(kind, Double) and (kind.precision or _SINGLE + 1) <= _SINGLE
    return not (kind.asdecimal or single or isinstance(kind, REAL))


def fits(number: Number, places: int | None) -> bool:
    """Tell whether a number is kept as it is."""
    if places is None or (isinstance(number, int) and places >= 0):
        return True
    exact = Decimal(str(number)) if isinstance(number, float) else Decimal(number)
    return exact.is_finite() and (Fraction(exact) * Fraction(10) ** places).denominator == 1


class Keeping(NamedTuple):
    """How a column keeps numbers: with how many places, and as what it gives them back."""

    places: int | None
    kind: type[Number]
    adds_up: bool

    @classmethod
    def of(cls, column: Column[Any]) -> "Keeping":
        """Return how a column does whose type converts nothing."""
        return cls(places_of(column), kept_as(column).python_type, adds_up(column))

    def given_back(self, number: Number) -> Number:
        """Return a number that fits as it is given back.

        What is added to it in memory is then what is added to it when the table is read in between.
        """
        if type(number) is self.kind:
            return number
        return self.kind(str(number)) if self.kind is Decimal else self.kind(number)
