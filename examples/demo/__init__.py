"""The demo: a small shop under load, on real servers."""
