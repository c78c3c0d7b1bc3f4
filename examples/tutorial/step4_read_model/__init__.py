"""Step 4: a table for queries, kept by the events."""
