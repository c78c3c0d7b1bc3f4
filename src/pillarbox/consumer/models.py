"""Local models of foreign events: a payload as whatever class a handler's annotation names.

Fields that a model does not know are ignored, so that a producer may add some. What a model needs
and a payload lacks is told by its path; values are never shown. Pydantic and attrs are optional, so
their classes are known by what they carry.
"""

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar, get_args, get_origin

from pillarbox.consumer.conversion import SCALARS, Convert, Misfit, contained, exactly
from pillarbox.errors import InvalidConfig
from pillarbox.event.domain import as_dataclass
from pillarbox.event.payload import encode_json

_UNIONS: Final = frozenset({typing.Union, types.UnionType})
_WRAPPERS: Final = frozenset({typing.Annotated, typing.Final, typing.Required, typing.NotRequired})


def converter(kind: Any) -> Convert:
    """Make the function that turns a payload into a model; it raises `Misfit` when it cannot.

    Raise `InvalidConfig` for a type that nothing can be turned into.
    """
    return _Workshop().make(kind)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a model: its name in the payload and in the constructor."""

    name: str
    argument: str
    convert: Convert
    required: bool


class _Workshop:
    """Make converters; a model that contains itself meets its own converter half made."""

    def __init__(self) -> None:
        self._models: dict[Any, Convert] = {}

    def make(self, kind: Any) -> Convert:
        """Make the converter of any annotation."""
        kind = _unwrapped(kind)
        origin, arguments = get_origin(kind) or kind, get_args(kind)
        if origin in _UNIONS:
            return self._union(arguments)
        if origin is typing.Literal:
            return exactly(arguments)
        found = SCALARS.get(origin) or contained(origin, arguments, self.make)
        return self._model(origin) if found is None else found

    def _union(self, members: tuple[Any, ...]) -> Convert:
        nothing = type(None) in members
        choices = [self.make(member) for member in members if member is not type(None)]

        def convert(value: Any) -> Any:
            if value is None and nothing:
                return None
            for choice in choices[:-1]:
                try:
                    return choice(value)
                except Misfit:
                    continue
            return choices[-1](value)

        return convert

    def _model(self, kind: Any) -> Convert:
        if not isinstance(kind, type):
            raise _unknown(kind)
        if kind not in self._models:
            self._models[kind] = partial(self._convert_later, kind)
            self._models[kind] = self._made_model(kind)
        return self._models[kind]

    def _convert_later(self, kind: type, value: Any) -> Any:
        return self._models[kind](value)

    def _made_model(self, kind: type) -> Convert:
        as_dataclass(kind)
        if issubclass(kind, Enum):
            return _enumerated(kind)
        if callable(getattr(kind, "model_validate_json", None)):
            return _validated(kind)
        if typing.is_typeddict(kind):
            return self._typed_dict(kind)
        if hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__attrs_attrs__"):
            return self._record(kind, kind.__init__)
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return self._record(kind, kind.__new__)
        for plain in (str, int, float):
            if issubclass(kind, plain):
                return _derived(kind, SCALARS[plain])
        raise _unknown(kind)

    def _typed_dict(self, kind: Any) -> Convert:
        fields = [
            _Field(name, name, self.make(hint), name in kind.__required_keys__)
            for name, hint in _hints(kind).items()
        ]
        return lambda value: _arguments(value, fields)

    def _record(self, kind: type, constructor: Callable[..., Any]) -> Convert:
        hints = _hints(kind)
        own_names = {item.alias: item.name for item in getattr(kind, "__attrs_attrs__", ())}
        fields = [
            _Field(
                name := own_names.get(parameter.name, parameter.name),
                parameter.name,
                self.make(hints.get(name, Any)),
                parameter.default is parameter.empty,
            )
            for parameter in list(inspect.signature(constructor).parameters.values())[1:]
        ]

        def convert(value: Any) -> Any:
            arguments = _arguments(value, fields)
            try:
                return kind(**arguments)
            except Exception as error:
                raise _refused(kind, error) from error

        return convert


def _unwrapped(kind: Any) -> Any:
    """Take off what says nothing about values: `Annotated`, `Final`, `NewType` and the like."""
    if isinstance(kind, TypeVar):
        return Any
    if isinstance(kind, InitVar):
        return _unwrapped(kind.type)
    if get_origin(kind) in _WRAPPERS:
        return _unwrapped(get_args(kind)[0])
    return _unwrapped(kind.__supertype__) if hasattr(kind, "__supertype__") else kind


def _arguments(value: Any, fields: list[_Field]) -> dict[str, Any]:
    """Return the fields that a payload has, converted; raise for one that is needed and missing."""
    if not isinstance(value, Mapping):
        raise Misfit("invalid-field", "is no object with fields")
    arguments = {}
    for field in fields:
        if field.name in value:
            try:
                arguments[field.argument] = field.convert(value[field.name])
            except Misfit as misfit:
                raise misfit.inside(f".{field.name}") from misfit.__cause__
        elif field.required:
            raise Misfit("missing-field", "is missing").inside(f".{field.name}")
    return arguments


def _enumerated(kind: type[Enum]) -> Convert:
    def convert(value: Any) -> Any:
        try:
            return kind(value)
        except Exception as error:  # `_missing_` may raise anything
            raise Misfit("invalid-field", f"is no {kind.__name__}") from error

    return convert


def _derived(kind: type, plain: Convert) -> Convert:
    def convert(value: Any) -> Any:
        found = plain(value)
        try:
            return kind(found)
        except Exception as error:
            raise _refused(kind, error) from error

    return convert


def _validated(kind: Any) -> Convert:
    """Let a Pydantic model read JSON, in which its strict fields take texts for dates and ids."""

    def convert(value: Any) -> Any:
        try:
            return kind.model_validate_json("null" if value is None else encode_json(value))
        except Exception as error:
            raise _first_problem(kind, error) from error

    return convert


def _first_problem(kind: type, error: Any) -> Misfit:
    try:
        found = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = "".join(
            f"[{step}]" if isinstance(step, int) else f".{step}" for step in found["loc"]
        )
        if found["type"] == "missing":
            return Misfit("missing-field", "is missing").inside(place)
        return Misfit("invalid-field", f"is refused as {found['type']}").inside(place)
    except Exception:  # noqa: BLE001 - a validator raised an error of its own
        return _refused(kind, error)


def _refused(kind: type, error: Exception) -> Misfit:
    # The text of an error may repeat the value.
    return Misfit("invalid-field", f"is refused by {kind.__name__} ({type(error).__name__})")


def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except NameError as error:
        raise InvalidConfig(
            f"model {kind.__qualname__}",
            f"names {error.name!r}, which is not found",
            "define it at the top of a module, or import it outside `if TYPE_CHECKING`",
        ) from error


def _unknown(kind: Any) -> InvalidConfig:
    return InvalidConfig(
        f"type {getattr(kind, '__qualname__', kind)}",
        "is no model that a payload can become",
        "use a dataclass, a DomainEvent, a Pydantic or attrs class, a TypedDict or dict",
    )
