"""Step 3: a message that comes twice takes effect once."""
