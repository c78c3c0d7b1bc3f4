"""Run one suite: print its table, write its JSON, fail when a bar is missed."""

import argparse
import asyncio
import importlib
import pkgutil
import sys
from pathlib import Path
from typing import Final

from benchmarks import suites
from benchmarks.report import Options, Report

RESULTS: Final = Path(__file__).parent / "results"
ROUNDS: Final = 7


def main() -> int:
    """Return 1 when a bar is missed."""
    known = sorted(found.name.replace("_", "-") for found in pkgutil.iter_modules(suites.__path__))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suite", choices=known)
    parser.add_argument("--rounds", type=int, help="measured rounds, after a warm-up")
    parser.add_argument("--only", default="", help="measures that hold this text")
    parser.add_argument("--size", type=int, help="events, in place of the suite's own number")
    parser.add_argument("--hold", type=float, default=0, help="claim: seconds of the old snapshot")
    given = parser.parse_args()

    options = Options(size=given.size, hold=given.hold)
    folder = RESULTS if given.size is None else None
    report = Report(suite=given.suite, only=given.only, options=options, folder=folder)
    suite = importlib.import_module(f"{suites.__name__}.{given.suite.replace('-', '_')}")
    asyncio.run(suite.run(report, given.rounds or getattr(suite, "ROUNDS", ROUNDS)))
    print(f"\n{report.table()}")
    if report.load > 1:
        print(f"the machine was busy with other work (load {report.load:.1f}); repeat when quiet")
    report.finish()
    return 0 if report.holds() else 1


if __name__ == "__main__":
    sys.exit(main())
