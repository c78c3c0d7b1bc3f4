"""HTTP commands that are safe to repeat: one effect and one answer for each Idempotency-Key."""
