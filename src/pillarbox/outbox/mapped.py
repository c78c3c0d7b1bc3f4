"""What an aggregate's mapping says of its type, id and version."""

from functools import lru_cache
from typing import Any

from sqlalchemy import inspect
from sqlalchemy.orm import Mapper
from sqlalchemy.orm.attributes import flag_modified, instance_state

from pillarbox.errors import InvalidKey
from pillarbox.event.aggregate import AggregateRoot
from pillarbox.event.rules import check_key
from pillarbox.outbox.row import Raiser, key_text


def is_mapped(aggregate: AggregateRoot) -> bool:
    """Tell a mapped aggregate from a plain domain object."""
    return is_mapped_class(type(aggregate))


def raiser_of(aggregate: AggregateRoot) -> Raiser:
    """Return how rows name an aggregate: type, id and the version that its events belong to."""
    kind = type(aggregate)
    version = version_of(aggregate)
    if version is not None and is_mapped_class(kind) and is_deleted(aggregate):
        version += 1  # a deleted row has no later version of its own
    return Raiser(
        aggregate_type=check_key("aggregate_type", kind.aggregate_type or kind.__name__),
        aggregate_id=_aggregate_id(aggregate),
        aggregate_version=version,
    )


def is_deleted(aggregate: AggregateRoot) -> bool:
    """Tell whether the running transaction has deleted a mapped aggregate's row."""
    return instance_state(aggregate).deleted


def version_of(aggregate: AggregateRoot) -> int | None:
    """Return an aggregate's version if it is a number."""
    name = _version_attribute(aggregate) if is_mapped(aggregate) else "version"
    if name is None:
        return None  # a column that nothing checks orders nothing
    version = getattr(aggregate, name, None)
    return version if isinstance(version, int) else None


def raise_version(aggregate: AggregateRoot) -> None:
    """Make the next flush write a new version, which locks the row and checks the old one."""
    version = _version_attribute(aggregate)
    if version is None:
        return
    mapper = _mapper(aggregate)
    if callable(mapper.version_id_generator):
        setattr(aggregate, version, mapper.version_id_generator(getattr(aggregate, version)))
        return
    # The database makes the version: any written column has it make a new one.
    keys = {version, *(mapper.get_property_by_column(column).key for column in mapper.primary_key)}
    name = next(prop.key for prop in mapper.column_attrs if prop.key not in keys)
    getattr(aggregate, name)  # an expired attribute cannot be flagged
    flag_modified(aggregate, name)


def _aggregate_id(aggregate: AggregateRoot) -> str:
    value = getattr(aggregate, "aggregate_id", None)
    if value is None:
        value = getattr(aggregate, "id", None)
    if value is None and is_mapped(aggregate):
        identity = inspect(aggregate).identity
        value = identity[0] if identity is not None and len(identity) == 1 else None
    if value is None:
        raise InvalidKey(
            "aggregate_id",
            f"of {type(aggregate).__name__} is not set",
            "give the class an attribute `id` or `aggregate_id`",
        )
    return key_text("aggregate_id", value)


def _version_attribute(aggregate: AggregateRoot) -> str | None:
    return _version_attribute_of(_mapper(aggregate))


@lru_cache(maxsize=1024)
def _version_attribute_of(mapper: Mapper[Any]) -> str | None:
    column = mapper.version_id_col
    return None if column is None else mapper.get_property_by_column(column).key


def _mapper(aggregate: AggregateRoot) -> Mapper[Any]:
    mapper: Mapper[Any] = type(aggregate).__mapper__  # type: ignore[attr-defined] # it is mapped
    return mapper


def is_mapped_class(kind: type) -> bool:
    """Tell whether SQLAlchemy maps a class."""
    mapper = getattr(kind, "__mapper__", None)
    return mapper is not None and mapper.class_ is kind
