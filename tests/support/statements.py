"""Compiled statements for all engines of a run: most tests make an engine, and compile the same."""

from collections.abc import Hashable
from types import FunctionType
from typing import Any, Final

from sqlalchemy import Dialect, Engine
from sqlalchemy.util import LRUCache, memoized_property

_KEPT: Final = 5000
# What every dialect makes for itself out of the rest.
_MADE: Final = {
    "_psycopg_adapters_map",
    "dbapi",
    "identifier_preparer",
    "type_compiler",
    "type_compiler_instance",
}


class Statements(LRUCache[Any, Any]):
    """An engine's compiled statements, and those of engines whose dialect is just like its own."""

    __slots__ = ("_all",)

    def __init__(self, own: LRUCache[Any, Any], shared: LRUCache[Any, Any]) -> None:
        super().__init__(own.capacity, own.threshold, own.size_alert)
        self._all = shared

    def get(self, key: Any, default: Any = None) -> Any:
        found = super().get(key)
        if found is None:
            found = self._all.get(_shared(key))
            if found is None:
                return default
            super().__setitem__(key, found)
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self._all[_shared(key)] = value


def _shared(key: tuple[Any, ...]) -> tuple[Any, ...]:
    dialect, *statement = key
    return (likeness(dialect), *statement)


def likeness(dialect: Dialect) -> Hashable:
    """Return what is equal for dialects that compile alike: kind, server's version, all options."""
    kind = type(dialect)
    traits = frozenset(
        (name, value)
        for name, value in vars(dialect).items()
        if name not in _MADE and not _remembered(getattr(kind, name, None))
    )
    return kind, traits


def _remembered(definition: object) -> bool:
    """Tell whether what a dialect has by this name is its own answer to a question of before."""
    return isinstance(definition, memoized_property | FunctionType)


def share_statements() -> None:
    """Have every engine that is made from now on look among the statements of all."""
    shared: LRUCache[Any, Any] = LRUCache(_KEPT)
    make = Engine.__init__

    def made(self: Engine, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        if isinstance(self._compiled_cache, LRUCache):
            self._compiled_cache = Statements(self._compiled_cache, shared)

    Engine.__init__ = made  # type: ignore[method-assign]  # there is no seam for it


share_statements()
