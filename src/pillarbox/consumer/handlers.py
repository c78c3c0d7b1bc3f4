"""Handlers as they are written: coroutines or plain functions, of an event and its context."""

import inspect
import typing
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from pillarbox.consumer.context import Context, SyncContext
from pillarbox.consumer.signals import Signal
from pillarbox.errors import InvalidConfig
from pillarbox.event.context import caused_by, tenant
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.outbox.capture import SETTINGS
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.tenancy import DEFAULT_TENANT

HandlerFunction = Callable[..., Awaitable[Signal | None] | Signal | None]

_CONTEXTS: Final = (Context, SyncContext)
_MOST: Final = 2
_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


@dataclass(frozen=True, slots=True)
class Handler:
    """A function with what it is told: the event's model, and where event and context stand."""

    function: HandlerFunction
    model: Any
    arguments: tuple[bool, ...]
    """For each argument whether it is the event; the other one is the context."""
    waits: bool

    async def __call__(self, event: object, context: Context) -> None:
        """Run the function in the context's transaction; raise the signal that it returns."""
        with belonging_to(context.envelope, walled=_is_walled(context.session)):
            answer = await self._answer(event, context)
        if isinstance(answer, Signal):
            raise answer

    async def _answer(self, event: object, context: Context) -> object:
        if self.waits:
            made: Any = self.function(*self._filled(event, context))
            return await made

        def in_transaction(session: Session) -> object:
            return self.function(*self._filled(event, context.sync(session)))

        return await context.session.run_sync(in_transaction)

    def _filled(self, event: object, context: Context | SyncContext) -> list[object]:
        return [event if is_event else context for is_event in self.arguments]


def handler_of(function: HandlerFunction) -> Handler:
    """Look at a function's arguments, and refuse one that cannot be called with an event."""
    hints = hints_of(function)
    names = [
        item.name
        for item in inspect.signature(function).parameters.values()
        if item.kind in _POSITIONAL and item.default is item.empty
    ]
    if not 1 <= len(names) <= _MOST:
        raise _refused(function, f"needs {len(names)} arguments", "take an event and a Context")
    contexts = [name for name in names if hints.get(name) in _CONTEXTS] or names[1:]
    events = [name for name in names if name not in contexts]
    if len(contexts) == _MOST:
        raise _refused(function, "has two contexts", "take an event and a Context")
    waits = is_async(function)
    _check_context(function, [hints.get(name) for name in contexts], waits=waits)
    return Handler(
        function,
        hints.get(events[0], Any) if events else Any,
        tuple(name in events for name in names),
        waits,
    )


def belonging_to(
    envelope: MessageEnvelope, *, walled: bool = False
) -> AbstractContextManager[None]:
    """Have what is raised inside the block belong to a message: tenant, cause, correlation, trace.

    A foreign id or trace that no header can carry is left out. A message without a tenant leaves
    the block without one, unless a wall stands between tenants.
    """
    message = caused_by(envelope.event_id, envelope.headers)
    if walled or envelope.tenant_id != DEFAULT_TENANT:
        return _inside(envelope.tenant_id, message)
    return message


@contextmanager
def _inside(tenant_id: str, message: AbstractContextManager[None]) -> Iterator[None]:
    with tenant(tenant_id), message:
        yield


def _is_walled(session: AsyncSession) -> bool:
    settings: CaptureSettings | None = session.info.get(SETTINGS)
    return settings is not None and settings.tenancy.required


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether a call of this makes a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose call is a coroutine
    )


def _check_context(function: Callable[..., Any], given: list[Any], *, waits: bool) -> None:
    wrong, right = (SyncContext, Context) if waits else (Context, SyncContext)
    if wrong in given:
        kind = "a coroutine" if waits else "no coroutine"
        raise _refused(
            function, f"is {kind} and takes a {wrong.__name__}", f"annotate it as {right.__name__}"
        )


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function, or of the call of an object."""
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004 - the call has the annotations
    try:
        return typing.get_type_hints(target)
    except NameError as error:
        raise _refused(
            function,
            f"names {error.name!r} in an annotation, which is not found",
            "define it at the top of a module, or import it outside `if TYPE_CHECKING`",
        ) from error
    except TypeError:
        return {}  # a partial or the like, which has no annotations of its own


def _refused(function: Callable[..., Any], problem: str, remedy: str) -> InvalidConfig:
    return InvalidConfig(f"handler {getattr(function, '__qualname__', function)}", problem, remedy)
