"""The outbox of PostgreSQL, by psycopg."""
