"""The outbox: its table, and the ways into it."""
