"""What an event does to a row of a read model."""

from collections.abc import Mapping
from typing import Any

from pillarbox.errors import InvalidConfig


class Change:
    """A change of one row, named by its id within the event's tenant; use one of its kinds."""

    __slots__ = ("row_id", "values")

    def __init__(self, row_id: object, /, **values: Any) -> None:
        if row_id is None or row_id == "":
            raise InvalidConfig(type(self).__name__, "names no row", "pass the row's id first")
        self.row_id: object = row_id
        self.values: Mapping[str, Any] = values

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Change)
            and type(self) is type(other)
            and (self.row_id, self.values) == (other.row_id, other.values)
        )

    __hash__ = None  # type: ignore[assignment]  # the values may be anything

    def __repr__(self) -> str:
        values = "".join(f", {name}={value!r}" for name, value in self.values.items())
        return f"{type(self).__name__}({self.row_id!r}{values})"


class Upsert(Change):
    """Insert the row, or set these columns of it.

    return Upsert(event.plan_id, status="PLANNED", stop_cnt=len(event.stops))
    """

    __slots__ = ()


class Update(Change):
    """Set these columns of the row, if it is there.

    return Update(event.plan_id, status="DONE")
    """

    __slots__ = ()


class Delete(Change):
    """Delete the row; an older event does not bring it back.

    return Delete(event.plan_id)
    """

    __slots__ = ()

    def __init__(self, row_id: object, /) -> None:
        super().__init__(row_id)


class Increment(Change):
    """Add to columns of the row, once for each event; a row that is missing begins with them.

    return Increment(event.customer_id, orders=1, cents=event.cents)
    """

    __slots__ = ()

    def __init__(self, row_id: object, /, **amounts: Any) -> None:
        super().__init__(row_id, **amounts)
        if not amounts:
            raise InvalidConfig("Increment", "adds nothing", "name a column and an amount")

    def added_to(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the new values; what is missing or NULL counts as nothing."""
        return {
            name: amount if row.get(name) is None else row[name] + amount
            for name, amount in self.values.items()
        }


Changes = Change | list[Change] | tuple[Change, ...] | None


def changes_of(answer: object, what: str) -> tuple[Change, ...]:
    """Return what a method answered as changes, or refuse it."""
    found = answer if isinstance(answer, list | tuple) else () if answer is None else (answer,)
    for item in found:
        if not isinstance(item, Change) or type(item) is Change:
            raise InvalidConfig(
                what,
                f"returned a {type(item).__name__}",
                "return Upsert, Update, Delete or Increment, a list of them, or None",
            )
    return tuple(found)
