"""The outbox through a session factory: SQLite, and PostgreSQL inside a transaction of a test's."""
