"""From the outbox to the bus: claim, publish, settle."""
