"""The live view: figures as text. Drawing is a function of values; only `Screen` writes."""

import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TextIO

from examples.demo.figures import Figures

LINE_SECONDS: Final = 3.0
DRAW_SECONDS: Final = 0.5
_RATE_SECONDS: Final = 3.0
_NOTES: Final = 7


@dataclass(frozen=True, slots=True)
class Process:
    """One process, as the view shows it."""

    name: str
    running: bool
    killed: int


@dataclass(frozen=True, slots=True)
class Scene:
    """All that is shown at one moment."""

    seconds: float
    figures: Figures
    order_rate: float
    event_rate: float
    processes: Sequence[Process]
    broker: str
    notes: Sequence[str]
    urls: Sequence[str]
    keys: str


def one_line(scene: Scene) -> str:
    """Say it in one line, for logs and pipes."""
    shown = scene.figures
    return (
        f"{shown.ordered} orders ({scene.order_rate:.0f}/s), "
        f"{shown.events} events ({scene.event_rate:.0f}/s), {shown.delivered} delivered, "
        f"{shown.waiting} waiting, oldest {shown.oldest:.1f} s, {shown.effects} effects"
    )


def picture(scene: Scene) -> list[str]:
    """Draw the whole view, line by line."""
    shown = scene.figures
    return [
        f"Pillarbox: the shop   {_clock(scene.seconds)}   {scene.broker}",
        "",
        f"{'tenant':<16}{'orders':>9}{'open':>9}{'confirmed':>11}{'rejected':>10}",
        *_tenants(shown),
        "",
        f"{'service':<16}{'events':>9}{'waiting':>9}{'delivered':>11}{'oldest':>10}",
        *_services(shown),
        "",
        f"rates           {scene.order_rate:>7.0f} orders/s {scene.event_rate:>7.0f} events/s",
        _effects(shown),
        "",
        *_processes(scene.processes),
        "",
        *scene.notes,
        *[""] * (_NOTES - len(scene.notes)),
        "",
        *scene.urls,
        scene.keys,
    ]


def _effects(shown: Figures) -> str:
    made = f"{shown.reservations} reservations, {shown.payments} payments, {shown.notices} notices"
    return f"effects         {made}, {shown.mails} mails"


def _tenants(shown: Figures) -> Iterator[str]:
    for tenant, each in shown.orders.items():
        yield f"{tenant:<16}{each.total:>9}{each.open:>9}{each.confirmed:>11}{each.rejected:>10}"


def _services(shown: Figures) -> Iterator[str]:
    for name, each in shown.outboxes.items():
        age = f"{each.oldest:.1f} s"
        yield f"{name:<16}{each.events:>9}{each.waiting:>9}{each.delivered:>11}{age:>10}"


def _processes(processes: Sequence[Process]) -> Iterator[str]:
    """Name the processes by service, each with its state."""
    by_service: dict[str, list[str]] = {}
    for each in processes:
        service, _, kind = each.name.partition(" ")
        state = kind if each.running else f"{kind} DOWN"
        times = f" (killed {each.killed}x)" if each.killed else ""
        by_service.setdefault(service, []).append(state + times)
    for service, kinds in by_service.items():
        yield f"{service:<16}{', '.join(kinds)}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02}:{int(seconds) % 60:02}"


@dataclass(slots=True)
class Rates:
    """How fast orders and events come, over the last few seconds."""

    seen: deque[tuple[float, int, int]] = field(default_factory=deque)

    def of(self, at: float, figures: Figures) -> tuple[float, float]:
        self.seen.append((at, figures.ordered, figures.delivered))
        while len(self.seen) > 2 and at - self.seen[1][0] >= _RATE_SECONDS:  # noqa: PLR2004
            self.seen.popleft()
        then, orders, events = self.seen[0]
        passed = max(at - then, 0.001)
        return (figures.ordered - orders) / passed, (figures.delivered - events) / passed


@dataclass(slots=True)
class Screen:
    """Write the view: redrawn in place on a terminal, else a line every few seconds."""

    out: TextIO = field(default_factory=lambda: sys.stderr)
    notes: deque[str] = field(default_factory=lambda: deque(maxlen=_NOTES))
    live: bool = False
    _drawn: int = 0
    _line_at: float = 0.0
    _started: float = field(default_factory=time.monotonic)

    @property
    def animated(self) -> bool:
        return self.live and self.out.isatty()

    def begin(self) -> None:
        """Begin to draw, if this is a terminal."""
        self.live = True
        self.notes.clear()

    def say(self, words: str) -> None:
        """Tell the person at the terminal what happens."""
        line = f"{_clock(time.monotonic() - self._started)}  {words}"
        self.notes.append(line)
        if not self.animated:
            print(f"demo: {line}", file=self.out, flush=True)

    def show(self, scene: Scene) -> None:
        if self.animated:
            self._redraw(picture(scene))
        elif scene.seconds - self._line_at >= LINE_SECONDS:
            self._line_at = scene.seconds
            line = f"{_clock(scene.seconds)}  {one_line(scene)}"
            print(f"demo: {line}", file=self.out, flush=True)

    def _redraw(self, lines: Sequence[str]) -> None:
        columns, rows = shutil.get_terminal_size()
        shown = [line[: columns - 1] for line in lines[: rows - 1]]
        back = f"\x1b[{self._drawn}F" if self._drawn else ""
        self.out.write(back + "".join(f"{line}\x1b[K\n" for line in shown) + "\x1b[J")
        self.out.flush()
        self._drawn = len(shown)
