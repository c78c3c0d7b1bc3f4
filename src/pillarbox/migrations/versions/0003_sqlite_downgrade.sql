-- Purpose: end the way back to version 2, on SQLite.
-- Locks: the database's write lock.

UPDATE outbox_settings SET schema_version = 2;
