-- Purpose: name the read models that follow the outbox's log, and need its rows.
-- Locks: none.
-- Index: none; there is a row for each model.
SELECT DISTINCT name FROM @{schema}readmodel WHERE source = 'log' ORDER BY name
