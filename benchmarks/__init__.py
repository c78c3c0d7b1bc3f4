"""Benchmarks: `python -m benchmarks SUITE` measures ours beside a reference, in one run."""
