"""The schema as Alembic migrations, branch `pillarbox`, for a set-up of your own.

In `alembic.ini`, beside your own versions (the lines that begin with `pillarbox_` are optional):

    [alembic]
    script_location = %(here)s/migrations
    path_separator = newline
    version_locations =
        %(here)s/migrations/versions
        pillarbox:migrations/versions
    pillarbox_schema = shop
    pillarbox_shards = 64
    pillarbox_partitioned = false
    pillarbox_tenancy = false

Then `alembic upgrade heads` runs both branches, `alembic upgrade pillarbox@head` ours alone.
So that `--autogenerate` does not drop what it does not know, pass
`pillarbox.migrations.autogenerate.include_name()` to `context.configure`.
Whoever has no Alembic set-up runs `pillarbox schema apply`, which does the same.
"""
