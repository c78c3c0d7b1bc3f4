"""The unit of work: one transaction for data and events."""
