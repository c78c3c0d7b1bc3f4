"""What a suite found: rows with a ratio and a bar, a table for people, JSON for machines."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any


@dataclass(frozen=True, slots=True)
class Bar:
    """The ratio that ours must keep to its reference."""

    limit: float
    at_most: bool

    def holds(self, ratio: float) -> bool:
        """Tell whether a ratio keeps to the bar."""
        return ratio <= self.limit if self.at_most else ratio >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.limit:g}"


def at_most(limit: float) -> Bar:
    """Make a bar for what should be small: a time, a cost."""
    return Bar(limit, at_most=True)


def at_least(limit: float) -> Bar:
    """Make a bar for what should be large: a rate."""
    return Bar(limit, at_most=False)


@dataclass(frozen=True, slots=True)
class Row:
    """One measure of ours beside its reference, with one value per round for each.

    The ratio is the median of the rounds' ratios: what disturbs a round disturbs both its sides.
    """

    measure: str
    unit: str
    ours: Sequence[float]
    reference: str
    theirs: Sequence[float]
    bar: Bar | None = None

    @property
    def ratio(self) -> float:
        """Ours divided by the reference."""
        return median(self.ratios)

    @property
    def ratios(self) -> list[float]:
        """The ratio of each round."""
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def holds(self) -> bool | None:
        """Whether the bar is kept; None for a row without one."""
        return None if self.bar is None else self.bar.holds(self.ratio)

    def as_json(self) -> dict[str, Any]:
        """Return the row as `results/*.json` has it."""
        return {
            "measure": self.measure,
            "value": _rounded(median(self.ours)),
            "unit": self.unit,
            "spread": _spread(self.ours),
            "reference": self.reference,
            "reference_value": _rounded(median(self.theirs)),
            "reference_spread": _spread(self.theirs),
            "ratio": round(self.ratio, 3),
            "ratio_spread": _spread(self.ratios),
            "bar": None if self.bar is None else str(self.bar),
            "holds": self.holds,
            "rounds": len(self.ours),
        }

    def cells(self) -> list[str]:
        """Return the row for the table."""
        verdict = {True: "yes", False: "NO", None: ""}[self.holds]
        low, high = _spread(self.ratios)
        return [
            self.measure,
            _shown(self.ours, self.unit),
            self.reference,
            _shown(self.theirs, self.unit),
            f"{self.ratio:.2f} ({low:.2f}-{high:.2f})",
            str(self.bar or ""),
            verdict,
        ]


def within(measure: str, unit: str, ours: Sequence[float], limit: float) -> Row:
    """Make the row of a measure that must keep to a fixed limit; the ratio is its share of it."""
    return Row(measure, unit, ours, "limit", [limit] * len(ours), at_most(1))


@dataclass(frozen=True, slots=True)
class Histogram:
    """Which share of a measure's values stays within each limit."""

    measure: str
    unit: str
    limits: Sequence[float]
    shares: Sequence[float]

    @classmethod
    def of(
        cls, measure: str, unit: str, limits: Sequence[float], rounds: Sequence[Sequence[float]]
    ) -> "Histogram":
        """Take the median of the rounds for each limit."""
        return cls(
            measure, unit, limits, [round(median(each), 4) for each in zip(*rounds, strict=True)]
        )


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller changes of a suite: its size, and how long the claim's snapshot is held."""

    size: int | None = None
    hold: float = 0.0


HEADINGS = ["measure", "ours", "reference", "its value", "ratio", "bar", "holds"]


@dataclass(slots=True)
class Report:
    """Collect the rows of one suite; spreads are the quartiles of the rounds."""

    suite: str
    only: str = ""
    options: Options = Options()
    rows: list[Row] = field(default_factory=list)
    histograms: list[Histogram] = field(default_factory=list)
    servers: dict[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    folder: Path | None = None
    """Where the rows are written as they come, beside those of an earlier run."""

    def wants(self, measure: str) -> bool:
        """Tell whether a measure is asked for."""
        return self.only in measure

    def add(self, row: Row) -> None:
        """Take a row, show it at once and keep it, because a suite takes minutes and may be ended."""
        self.rows.append(row)
        print("  ".join(row.cells()), flush=True)
        self._write(whole=False)

    def add_histogram(self, histogram: Histogram) -> None:
        """Take the histogram of a measure; it is written with the next row."""
        self.histograms.append(histogram)

    def holds(self) -> bool:
        """Tell whether no bar is missed."""
        return all(row.holds is not False for row in self.rows)

    def table(self) -> str:
        """Return the rows for people."""
        lines = [HEADINGS, *(row.cells() for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        lines.insert(1, ["-" * width for width in widths])
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def finish(self) -> None:
        """Write the rows for machines; a part of a suite leaves the other rows as they are."""
        self._write(whole=not self.only)

    def _write(self, *, whole: bool) -> None:
        if self.folder is None:
            return
        path = self.folder / f"{self.suite}.json"
        when = {"measured": f"{datetime.now(UTC):%Y-%m-%d}", "load_at_start": round(self.load, 1)}
        rows = [row.as_json() | when for row in self.rows]
        histograms = {each.measure: asdict(each) for each in self.histograms}
        if not whole and path.exists():
            kept = json.loads(path.read_text())
            rows = with_rows(kept["rows"], rows)
            histograms = {each["measure"]: each for each in kept["histograms"]} | histograms
        found = {
            "suite": self.suite,
            "machine": machine(self.servers, self.packages),
            "rows": rows,
            "histograms": list(histograms.values()),
        }
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


def with_rows(
    kept: Sequence[dict[str, Any]], measured: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Put rows that were measured anew in the place of the old ones, and further ones at the end."""
    rows = {(row["measure"], row["reference"]): row for row in (*kept, *measured)}
    return list(rows.values())


def machine(servers: Mapping[str, str], packages: Sequence[str]) -> dict[str, Any]:
    """Describe the machine, without its name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.machine()}",
        "servers": dict(servers),
        "packages": {name: version(name) for name in packages},
    }


def _spread(values: Sequence[float]) -> list[float]:
    """Return the lower and the upper quartile."""
    if len(values) < 2:
        return [_rounded(values[0])] * 2
    low, _, high = quantiles(values, n=4, method="inclusive")
    return [_rounded(low), _rounded(high)]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _shown(values: Sequence[float], unit: str) -> str:
    low, high = _spread(values)
    middle = median(values)
    return f"{_number(middle)} ± {_number((high - low) / 2)} {unit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
