-- Purpose: end version 3, on PostgreSQL 15 and newer; its parts stand in scripts of their own.
-- Locks: the settings row, until the commit.
-- Frozen: never edit this file after a release; write the next version.

UPDATE @{schema}outbox_settings SET schema_version = 3 WHERE schema_version < 3;
