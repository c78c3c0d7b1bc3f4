-- Purpose: end the way back to version 2.
-- Locks: the settings row, until the commit.

UPDATE @{schema}outbox_settings SET schema_version = 2;
