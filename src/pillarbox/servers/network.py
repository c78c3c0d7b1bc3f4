"""Give servers a network of their own, in which one can be cut off from the others."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pillarbox.servers.custody import Command, Custody
from pillarbox.servers.errors import ServerFailed
from pillarbox.servers.locate import find_network, find_network_tool

_NAME: Final = "network"
# Ranges that nobody routes: for measurements (RFC 2544), and for documentation (RFC 5737).
_OUTER: Final = "198.{}.{}"
_OUTER_SECONDS: Final = (18, 19)
_INNER: Final = "198.51.100"
_THIS_MACHINE: Final = 254
_TRIES: Final = 50
_IP_SECONDS: Final = 20.0
_UNSHARE_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.005
_TAIL: Final = 800


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server may stand: an address for this machine, and one for the other places."""

    number: int
    outer: str
    inner: str
    enter: tuple[str, ...]
    """What to put in front of a command that is to run there."""


class Network:
    """Places, each reached by this machine and, over links of their own, by one another.

    A place is a network namespace with two links. `cut` takes away the one to the other places, with
    no word to either side: packets are lost and connections stay open, as with a broken switch; this
    machine still reaches every place. Needs root, and Linux. Every call blocks and is bounded.

    All of it belongs to processes that end with this one, however that ends, and goes with them.

        with Network(3) as network:
            network.cut(network.places[0])
    """

    def __init__(self, places: int, *, chooser: random.Random | None = None) -> None:
        self._count = places
        self._chooser = chooser or random.SystemRandom()
        self._places: list[Place] = []
        self._custody: Custody | None = None
        self._ip = Path()
        self._switch = 0
        self._link = ""

    @property
    def places(self) -> Sequence[Place]:
        """The places, which exist once the network is started."""
        return tuple(self._places)

    def start(self) -> Self:
        """Make the places and their links."""
        if self._custody is not None:
            raise ServerFailed(_NAME, "is started already")
        self._ip = find_network()
        self._custody = Custody.open(
            _NAME, account=None, folder=None, end_signal=signal.SIGKILL, end_seconds=0
        )
        try:
            self._switch = self._hold()
            self._build([self._hold() for _ in range(self._count)])
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Take everything away; harmless when it is not there."""
        if self._custody is None:
            return
        if self._link:
            # It would go with its other end, but only when the kernel comes round to that.
            with suppress(ServerFailed):
                self._run((), [f"link delete {self._link}"])
        custody, self._custody, self._link = self._custody, None, ""
        self._places.clear()
        custody.close()

    def cut(self, place: Place) -> None:
        """Take a place's link to the others away; packets to and from it are lost from now on."""
        self._change(f"link set dev inner{place.number} nomaster")

    def heal(self, place: Place) -> None:
        """Give a place its link to the others back."""
        self._change(f"link set dev inner{place.number} master inner")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _hold(self) -> int:
        """Make a namespace; return the id of the process that it lives as long as."""
        custody = self._owned
        program = (str(find_network_tool("unshare")), "--net", "sleep", "infinity")
        pid = custody.spawn(Command(program), custody.folder / "network.log")
        limit = time.monotonic() + _UNSHARE_SECONDS
        while _namespace(str(pid)) in (None, _namespace("self")):
            if custody.returncode() is not None or time.monotonic() > limit:
                raise ServerFailed(_NAME, "has no namespace: see `unshare --net true`")
            time.sleep(_POLL_SECONDS)
        return pid

    def _build(self, holders: Sequence[int]) -> None:
        subnet = self._join_this_machine()
        for number, holder in enumerate(holders, 1):
            place = Place(number, f"{subnet}.{number}", f"{_INNER}.{number}", self._enter(holder))
            self._run((), _links(place.number, self._switch, holder))
            self._run(place.enter, _addresses(place))
            self._places.append(place)
        self._change(*_switch(self._count))

    def _join_this_machine(self) -> str:
        """Lead one link here; return the range of addresses that its name keeps for this network."""
        ranges = [(second, third) for second in _OUTER_SECONDS for third in range(256)]
        for second, third in self._chooser.sample(ranges, _TRIES):
            link, subnet = f"pbox-{second}-{third}", _OUTER.format(second, third)
            if self._leads_here(link):
                self._link = link
                address = f"address add {subnet}.{_THIS_MACHINE}/24 dev {link}"
                self._run((), [address, f"link set dev {link} up"])
                return subnet
        raise ServerFailed(_NAME, "found no range of addresses that is free")

    def _leads_here(self, link: str) -> bool:
        """Make the link between switch and machine; False when another network has it."""
        try:
            self._run((), [f"link add {link} type veth peer name outer0 netns {self._switch}"])
        except ServerFailed:
            if Path("/sys/class/net", link).exists():
                return False
            raise
        return True

    def _change(self, *commands: str) -> None:
        self._run(self._enter(self._switch), commands)

    def _enter(self, holder: int) -> tuple[str, ...]:
        return (str(find_network_tool("nsenter")), f"--net=/proc/{holder}/ns/net")

    def _run(self, enter: Sequence[str], commands: Sequence[str]) -> None:
        """Have `ip` do all of this, in the namespace that is entered."""
        self._owned  # noqa: B018 - refuses when the network is not there
        done = subprocess.run(
            [*enter, self._ip, "-batch", "-"],
            input="\n".join(commands) + "\n",
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_IP_SECONDS,
        )
        if done.returncode != 0:
            raise ServerFailed(_NAME, f"was refused by `ip`: {done.stdout[-_TAIL:].strip()}")

    @property
    def _owned(self) -> Custody:
        if self._custody is None:
            raise ServerFailed(_NAME, "is not started")
        return self._custody


def _namespace(process: str) -> str | None:
    """Name the namespace of a process; None when it has ended."""
    try:
        return os.readlink(f"/proc/{process}/ns/net")  # noqa: PTH115 - a name, not a path
    except OSError:
        return None


def _links(number: int, switch: int, holder: int) -> list[str]:
    return [
        f"link add {side}{number} netns {switch} type veth peer name {side} netns {holder}"
        for side in ("inner", "outer")
    ]


def _addresses(place: Place) -> list[str]:
    return [
        "link set dev lo up",
        f"address add {place.inner}/24 dev inner",
        "link set dev inner up",
        f"address add {place.outer}/24 dev outer",
        "link set dev outer up",
    ]


def _switch(places: int) -> Iterator[str]:
    """Say how the links become two nets: one with this machine, one without."""
    for side, first in (("inner", 1), ("outer", 0)):
        yield f"link add {side} type bridge"
        yield f"link set dev {side} up"
        for number in range(first, places + 1):
            yield f"link set dev {side}{number} master {side} up"
