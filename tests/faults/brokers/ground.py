"""What the rig needs of each broker."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from tests.faults.readers import Message


class Broker(Protocol):
    """A server or several, with what can befall all of it."""

    name: str

    @property
    def url(self) -> str: ...

    def kill(self) -> None: ...

    def restart(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Ground:
    """A broker of our own, with its topics made and a way to read all that it holds."""

    server: Broker
    read: Callable[[], Iterable[Message]]
