"""A rebuild on a terminal: a bar with position, rate and the time to go."""

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Self, TextIO

from pillarbox.readmodel.progress import Phase, Progress

_CELLS: Final = 30
_LINE_SECONDS: Final = 10.0
_DRAW_SECONDS: Final = 0.1
_MINUTE: Final = 60
_HOUR: Final = 3_600


def as_text(progress: Progress) -> str:
    """Say how far a rebuild is, in one line without the bar."""
    share = "" if progress.share is None else f"{_percent(progress.share)}  "
    return f"{progress.model}  {share}{_figures(progress)}"


def drawn(progress: Progress, columns: int) -> str:
    """Draw the bar, no wider than the terminal; without an end there is nothing to fill."""
    if progress.share is None:
        return as_text(progress)[:columns]
    figures = f"{_percent(progress.share)}  {_figures(progress)}"
    around = len(f"{progress.model}  []  {figures}")
    cells = max(min(_CELLS, columns - around), 0)
    full = int(progress.share * cells)
    bar = f"[{'#' * full}{'.' * (cells - full)}]  " if cells else ""
    return f"{progress.model}  {bar}{figures}"[:columns]


def _percent(share: float) -> str:
    # Rounded down: only the end is 100 %.
    return f"{int(share * 100):3} %"


def _figures(progress: Progress) -> str:
    end = "unknown" if progress.target is None else f"{progress.target:,}"
    rate = f"{progress.events_per_second:,.0f} events/s"
    return f"{progress.position:,} of {end}  {rate}  {_to_go(progress)}"


def _to_go(progress: Progress) -> str:
    if progress.phase != "filling":
        return progress.phase
    if progress.remaining is None:
        return "time to go unknown"
    return f"{_duration(progress.remaining)} to go"


def _duration(long: timedelta) -> str:
    # Rounded up: what has not ended takes a second at least.
    seconds = int(-(-long.total_seconds() // 1))
    if seconds < _MINUTE:
        return f"{seconds} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min {seconds % _MINUTE:02} s"
    return f"{seconds // _HOUR} h {seconds % _HOUR // _MINUTE:02} min"


@dataclass(slots=True)
class ProgressBar:
    """Show a rebuild as a bar on stderr; where that is no terminal, by a line every ten seconds.

    with ProgressBar() as bar:
        await plans.rebuild(report=bar)

    The `with` ends the bar's line when the rebuild fails.
    """

    out: TextIO = field(default_factory=lambda: sys.stderr)
    now: Callable[[], float] = time.monotonic
    _told: Phase | None = None
    _told_at: float = 0.0
    _open: bool = False

    def __call__(self, progress: Progress) -> None:
        """Show how far the rebuild is, unless it was shown a moment ago."""
        live, now = self._live(), self.now()
        every = _DRAW_SECONDS if live else _LINE_SECONDS
        if progress.phase == self._told and now - self._told_at < every:
            return
        self._told, self._told_at = progress.phase, now
        if live:
            self._redraw(progress)
        else:
            print(as_text(progress), file=self.out, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def _live(self) -> bool:
        return self.out.isatty() and os.environ.get("TERM") != "dumb"

    def _redraw(self, progress: Progress) -> None:
        # The last column stays free: some terminals begin a new line in it.
        columns = shutil.get_terminal_size().columns - 1
        self.out.write(f"\r{drawn(progress, columns)}\x1b[K")
        self.out.flush()
        self._open = True
        if progress.phase == "done":
            self._end()

    def _end(self) -> None:
        if self._open:
            self.out.write("\n")
            self.out.flush()
            self._open = False
