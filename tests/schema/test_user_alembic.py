"""The migrations run inside a user's own Alembic set-up, beside the user's own."""

import io
from pathlib import Path
from uuid import UUID

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine, insert, inspect, text
from sqlalchemy.pool import NullPool

from pillarbox.database import sync_url
from pillarbox.errors import InvalidConfig, SchemaInUse, SetupError
from pillarbox.schema import SchemaOptions, apply, check
from pillarbox.schema.tables import SEQUENCES, inbox_parked, inbox_task, saga
from tests.schema.rows import record

INI = """
[alembic]
script_location = %(here)s/migrations
path_separator = newline
version_locations =
    %(here)s/migrations/versions
    pillarbox:migrations/versions
"""
ENV = """
from alembic import context
from sqlalchemy import Column, Integer, MetaData, Table, create_engine
from sqlalchemy.pool import NullPool
from pillarbox.migrations.autogenerate import include_name

metadata = MetaData()
Table("orders", metadata, Column("id", Integer, primary_key=True))
options = {"target_metadata": metadata, "include_name": include_name()}
url = context.config.get_main_option("sqlalchemy.url")
if context.is_offline_mode():
    context.configure(url=url, literal_binds=True, **options)
    with context.begin_transaction():
        context.run_migrations()
else:
    with create_engine(url, poolclass=NullPool).connect() as connection:
        context.configure(connection=connection, **options)
        with context.begin_transaction():
            context.run_migrations()
"""
OWN = """
from alembic import op
from sqlalchemy import Column, Integer

revision, down_revision, branch_labels, depends_on = "own_1", None, ("shop",), None

def upgrade():
    op.create_table("orders", Column("id", Integer, primary_key=True))

def downgrade():
    op.drop_table("orders")
"""


@pytest.fixture
def config(any_url: str, tmp_path: Path) -> Config:
    """A user's project on every database."""
    return project(tmp_path, any_url)


@pytest.fixture
def postgres_config(database_url: str, tmp_path: Path) -> Config:
    """A user's project on PostgreSQL."""
    return project(tmp_path, database_url)


def project(folder: Path, database_url: str) -> Config:
    """Write a project with one migration of its own, and ours."""
    versions = folder / "migrations" / "versions"
    versions.mkdir(parents=True)
    (folder / "alembic.ini").write_text(INI)
    (folder / "migrations" / "env.py").write_text(ENV)
    (folder / "migrations" / "script.py.mako").write_text("")
    (versions / "own_1.py").write_text(OWN)
    config = Config(folder / "alembic.ini", stdout=io.StringIO(), output_buffer=io.StringIO())
    address = sync_url(database_url).render_as_string(hide_password=False)
    config.set_main_option("sqlalchemy.url", address)
    return config


def printed_by(config: Config) -> str:
    buffer = config.output_buffer
    assert isinstance(buffer, io.StringIO)
    return buffer.getvalue()


def engine_of(config: Config) -> Engine:
    return create_engine(str(config.get_main_option("sqlalchemy.url")), poolclass=NullPool)


def test_upgrade_heads_runs_the_users_migrations_and_ours(config: Config) -> None:
    command.upgrade(config, "heads")

    with engine_of(config).connect() as connection:
        assert check(connection) == []
        assert inspect(connection).has_table("orders")


def test_upgrading_is_harmless_where_the_command_line_was_first(config: Config) -> None:
    apply(engine_of(config), SchemaOptions(shards=16))

    command.upgrade(config, "pillarbox@head")

    with engine_of(config).connect() as connection:
        assert check(connection, SchemaOptions(shards=16)) == []
        assert not inspect(connection).has_table("orders")


def test_the_ini_file_chooses_schema_layout_shards_and_tenancy(postgres_config: Config) -> None:
    postgres_config.set_main_option("pillarbox_schema", "order")
    postgres_config.set_main_option("pillarbox_shards", "8")
    postgres_config.set_main_option("pillarbox_partitioned", "true")
    postgres_config.set_main_option("pillarbox_tenancy", "true")

    command.upgrade(postgres_config, "heads")

    options = SchemaOptions(schema="order", shards=8, partitioned=True, tenancy=True)
    with engine_of(postgres_config).connect() as connection:
        assert check(connection, options) == []


@pytest.mark.parametrize(
    ("name", "value"), [("pillarbox_shards", "many"), ("pillarbox_tenancy", "perhaps")]
)
def test_a_wrong_word_in_the_ini_file_is_named(config: Config, name: str, value: str) -> None:
    config.set_main_option(name, value)

    with pytest.raises(InvalidConfig, match=f"{name} is '{value}'"):
        command.upgrade(config, "pillarbox@head")


def test_the_sql_can_be_printed_and_run_by_hand(postgres_config: Config) -> None:
    command.upgrade(postgres_config, "pillarbox@head", sql=True)

    printed = printed_by(postgres_config)
    with engine_of(postgres_config).connect() as connection:
        connection.exec_driver_sql(printed, execution_options={"no_parameters": True})
        assert check(connection) == []


def test_autogenerate_does_not_touch_our_tables(postgres_config: Config) -> None:
    postgres_config.set_main_option("pillarbox_partitioned", "true")
    command.upgrade(postgres_config, "heads")

    command.check(postgres_config)


def test_a_downgrade_drops_everything_when_all_events_are_sent(config: Config) -> None:
    command.upgrade(config, "heads")
    with engine_of(config).begin() as connection:
        record(connection, 1, "SENT")

    command.downgrade(config, "pillarbox@base")

    with engine_of(config).connect() as connection:
        tables = inspect(connection).get_table_names()
        assert sorted(tables) == ["alembic_version", "orders"]
        assert inspect(connection).get_view_names() == []


def test_a_downgrade_is_refused_while_an_event_is_not_sent(config: Config) -> None:
    command.upgrade(config, "heads")
    for seq, status in enumerate(["NEW", "PUBLISHING", "FAILED", "DEAD"], 1):
        with engine_of(config).begin() as connection:
            connection.exec_driver_sql("DELETE FROM outbox")
            record(connection, seq, status)

        with pytest.raises(SchemaInUse, match="1 events in the outbox are not SENT"):
            command.downgrade(config, "pillarbox@base")

    command.upgrade(
        config, "heads"
    )  # on SQLite versions 3 and 2 were gone before version 1 refused
    with engine_of(config).connect() as connection:
        assert check(connection) == []
        assert connection.scalar(text("SELECT status FROM outbox")) == "DEAD"


def test_a_step_back_from_version_2_leaves_the_outbox_as_it_was(config: Config) -> None:
    command.upgrade(config, "pillarbox_0001")
    with engine_of(config).begin() as connection:
        before = inspect(connection).get_table_names()
        record(connection, 1)
    command.upgrade(config, "pillarbox@head")

    command.downgrade(config, "pillarbox_0001")

    with engine_of(config).connect() as connection:
        assert inspect(connection).get_table_names() == before
        assert connection.scalar(text("SELECT schema_version FROM outbox_settings")) == 1
        assert connection.scalar(text("SELECT count(*) FROM outbox")) == 1


PRECIOUS = {
    "1 messages are parked": insert(inbox_parked).values(
        tenant_id="acme", parked_id=UUID(int=1), seq=1, consumer="c", message_id="m", topic="t",
        reason="failed", state="parked",
    ),
    "1 tasks are not done": insert(inbox_task).values(
        tenant_id="acme", task_id=UUID(int=1), consumer="c", message_id="m", name="mail",
    ),
    "1 sagas have not ended": insert(saga).values(
        tenant_id="acme", saga_id=UUID(int=1), name="s", version=1, state="STUCK", start_id="e",
        start={}, steps=["a"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PRECIOUS)
def test_a_step_back_is_refused_while_messages_tasks_or_sagas_wait(
    config: Config, what: str
) -> None:
    command.upgrade(config, "heads")
    with engine_of(config).begin() as connection:
        connection.execute(PRECIOUS[what])

    with pytest.raises(SchemaInUse, match=what):
        command.downgrade(config, "pillarbox_0001")

    command.upgrade(config, "heads")  # on SQLite version 3 was gone before version 2 refused
    with engine_of(config).connect() as connection:
        assert check(connection) == []


def test_a_database_of_version_1_is_brought_to_the_newest(config: Config) -> None:
    command.upgrade(config, "pillarbox_0001")
    with engine_of(config).begin() as connection:
        record(connection, 1)

    apply(engine_of(config))

    with engine_of(config).connect() as connection:
        assert check(connection) == []
        assert connection.scalar(text("SELECT count(*) FROM outbox")) == 1


def test_tenancy_comes_with_the_step_from_version_1(postgres_config: Config) -> None:
    postgres_config.set_main_option("pillarbox_tenancy", "true")
    command.upgrade(postgres_config, "pillarbox_0001")

    command.upgrade(postgres_config, "pillarbox@head")

    with engine_of(postgres_config).connect() as connection:
        assert check(connection, SchemaOptions(tenancy=True)) == []


def test_a_downgrade_sees_the_rows_that_row_level_security_hides_from_the_owner(
    postgres_config: Config,
) -> None:
    postgres_config.set_main_option("pillarbox_tenancy", "true")
    command.upgrade(postgres_config, "heads")
    role = "CREATE ROLE schema_owner_downgrade LOGIN"
    with engine_of(postgres_config).begin() as connection:
        record(connection, 1)
        exists = text("SELECT 1 FROM pg_roles WHERE rolname = 'schema_owner_downgrade'")
        if not connection.scalar(exists):
            connection.exec_driver_sql(role)
        connection.exec_driver_sql("ALTER SCHEMA public OWNER TO schema_owner_downgrade")
        for name in [*inspect(connection).get_table_names(), "outbox_live", *SEQUENCES]:
            connection.exec_driver_sql(f"ALTER TABLE {name} OWNER TO schema_owner_downgrade")
    url = engine_of(postgres_config).url.set(username="schema_owner_downgrade")
    postgres_config.set_main_option("sqlalchemy.url", url.render_as_string(hide_password=False))

    with pytest.raises(SchemaInUse):
        command.downgrade(postgres_config, "pillarbox@base")


def test_an_offline_downgrade_is_refused(postgres_config: Config) -> None:
    with pytest.raises(SetupError, match="no offline downgrade"):
        command.downgrade(postgres_config, "pillarbox_0001:base", sql=True)
