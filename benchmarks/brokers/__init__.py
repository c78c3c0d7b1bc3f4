"""The brokers of the projector's suites: a topic made afresh for each side, and what it holds."""
