"""How far a rebuild is: the numbers, and the bar that shows them."""

import io
from dataclasses import replace
from datetime import timedelta

import pytest

from pillarbox import ProgressBar
from pillarbox.consumer.standing import Standing
from pillarbox.readmodel.filling import end_of
from pillarbox.readmodel.progress import Pace, Progress
from pillarbox.readmodel.progress_bar import as_text, drawn

HALF = Progress(
    model="plans", phase="filling", position=5_000, target=10_000, events=4_000,
    events_per_second=1_600.0, positions_per_second=2_000.0,
)  # fmt: skip
ENDLESS = replace(HALF, target=None)


def test_the_time_to_go_is_by_positions_since_a_log_has_gaps() -> None:
    assert HALF.share == 0.5
    assert HALF.remaining == timedelta(seconds=2.5)


def test_a_way_that_begins_in_the_middle_is_measured_from_there() -> None:
    assert replace(HALF, start=4_000).share == pytest.approx(1 / 6)


def test_where_nobody_knows_the_end_nothing_is_claimed() -> None:
    assert ENDLESS.share is None
    assert ENDLESS.remaining is None
    assert replace(HALF, positions_per_second=0.0).remaining is None


def test_an_empty_log_is_done() -> None:
    empty = replace(HALF, position=0, target=0)

    assert (empty.share, empty.remaining) == (1.0, timedelta(0))


def test_the_pace_is_that_of_the_last_ten_seconds() -> None:
    times = iter([0.0, 1.0, 10.0, 20.0])
    pace = Pace(100, 0, now=lambda: next(times))

    seen = [pace.at(300, 100), pace.at(500, 200), pace.at(510, 205)]

    assert seen == [(200.0, 100.0), (40.0, 20.0), (1.0, 0.5)]


@pytest.mark.parametrize(
    ("standing", "end"),
    [
        (Standing(in_hand=2, finished=3, waiting=10), 115),
        (Standing(in_hand=2, finished=3), None),
        (Standing(finished=3, at_end=True), 103),
        (Standing(finished=3, at_end=False), None),
        (Standing(finished=3, waiting=0), 103),
    ],
)
def test_the_end_is_what_was_taken_and_what_the_broker_has_or_unknown(
    standing: Standing, end: int | None
) -> None:
    assert end_of(100, standing) == end


FIGURES = "5,000 of 10,000  1,600 events/s  3 s to go"


@pytest.mark.parametrize(
    ("progress", "columns", "line"),
    [
        (HALF, 120, f"plans  [{'#' * 15}{'.' * 15}]   50 %  {FIGURES}"),
        (HALF, 70, f"plans  [{'#' * 5}{'.' * 5}]   50 %  {FIGURES}"),
        (HALF, 60, f"plans   50 %  {FIGURES}"),
        (HALF, 20, "plans   50 %  5,000 "),
        (ENDLESS, 120, "plans  5,000 of unknown  1,600 events/s  time to go unknown"),
        (
            replace(HALF, position=9_999, phase="switching"), 120,
            f"plans  [{'#' * 29}.]   99 %  9,999 of 10,000  1,600 events/s  switching",
        ),
        (
            replace(HALF, position=10_000, phase="done"), 120,
            f"plans  [{'#' * 30}]  100 %  10,000 of 10,000  1,600 events/s  done",
        ),
    ],
)  # fmt: skip
def test_the_bar_has_position_rate_and_the_time_to_go(
    progress: Progress, columns: int, line: str
) -> None:
    assert drawn(progress, columns) == line


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.01, "1 s"), (59, "59 s"), (59.5, "1 min 00 s"), (125, "2 min 05 s"),
        (3_599.1, "1 h 00 min"), (90_000, "25 h 00 min"),
    ],
)  # fmt: skip
def test_the_time_to_go_is_rounded_up(seconds: float, words: str) -> None:
    progress = replace(HALF, positions_per_second=5_000 / seconds)

    assert as_text(progress).endswith(f"  {words} to go")


class Failed(Exception):
    pass


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def test_a_terminal_has_one_line_that_is_drawn_again(terminal: Terminal) -> None:
    at = 0.0
    bar = ProgressBar(terminal, now=lambda: at)
    bar(HALF)
    at = 0.05
    bar(replace(HALF, position=6_000))  # too soon
    at = 0.2
    bar(replace(HALF, position=7_000))
    done = replace(HALF, position=10_000, phase="done")
    bar(done)

    assert terminal.getvalue() == "".join(
        [
            f"\r{drawn(HALF, 99)}\x1b[K",
            f"\r{drawn(replace(HALF, position=7_000), 99)}\x1b[K",
            f"\r{drawn(done, 99)}\x1b[K\n",
        ]
    )


def test_a_rebuild_that_fails_leaves_the_line_of_its_bar(terminal: Terminal) -> None:
    def rebuild() -> None:
        with ProgressBar(terminal) as bar:
            bar(HALF)
            raise Failed

    with pytest.raises(Failed):
        rebuild()

    assert terminal.getvalue() == f"\r{drawn(HALF, 99)}\x1b[K\n"


@pytest.mark.parametrize("dumb", [True, False])
def test_what_is_no_terminal_has_a_line_every_ten_seconds_and_for_each_phase(
    *, dumb: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb" if dumb else "xterm")
    out, at = Terminal() if dumb else io.StringIO(), 0.0
    bar = ProgressBar(out, now=lambda: at)
    for at in (0.0, 9.9, 10.0, 19.9):
        bar(replace(HALF, position=5_000 + int(at * 10)))
    bar(replace(HALF, position=10_000, phase="done"))

    assert out.getvalue().splitlines() == [
        "plans   50 %  5,000 of 10,000  1,600 events/s  3 s to go",
        "plans   51 %  5,100 of 10,000  1,600 events/s  3 s to go",
        "plans  100 %  10,000 of 10,000  1,600 events/s  done",
    ]
