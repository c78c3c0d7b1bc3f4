-- Purpose: end version 3, on SQLite; its parts stand in scripts of their own.
-- Locks: the database's write lock.
-- Frozen: never edit this file after a release; write the next version.

UPDATE outbox_settings SET schema_version = 3 WHERE schema_version < 3;
