"""What a person sees of `pillarbox schema`, and what a pipeline reads from it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from pillarbox.cli.main import main
from pillarbox.database import sync_url


def run(*arguments: str, url: str | None = None) -> Result:
    env = {"PILLARBOX_DATABASE_URL": url, "PILLARBOX_SCHEMA": None}
    return CliRunner().invoke(main, arguments, env=env)


def engine_of(url: str) -> Engine:
    return create_engine(sync_url(url), poolclass=NullPool)


def test_apply_lists_its_steps_on_stderr_and_check_is_content(any_url: str) -> None:
    applied = run("schema", "apply", url=any_url)
    checked = run("schema", "check", url=any_url)

    assert (applied.exit_code, applied.stdout) == (0, "")
    assert [line.split("  ")[1] for line in applied.stderr.splitlines()[1:]] == [
        "tables, version 1",
        "tables, version 2",
        "tables, version 3",
        "done",
    ]
    assert (checked.exit_code, checked.stdout) == (0, "ok: the schema is as it should be\n")


def test_apply_with_everything_then_again(database_url: str) -> None:
    options = ["--schema", "shop", "--partitioned", "--shards", "16", "--tenancy"]

    first = run("schema", "apply", *options, url=database_url)
    again = run("schema", "apply", *options, url=database_url)
    checked = run("schema", "check", *options, "--json", url=database_url)

    assert (first.exit_code, again.exit_code, checked.exit_code) == (0, 0, 0)
    assert "schema shop" in first.stderr
    assert "row-level security" in first.stderr
    assert "row-level security" not in again.stderr
    assert json.loads(checked.stdout) == {"ok": True, "findings": []}


def test_drift_has_exit_code_3_as_a_table_and_as_json(any_url: str) -> None:
    run("schema", "apply", url=any_url)
    with engine_of(any_url).begin() as connection:
        connection.exec_driver_sql("DROP INDEX ix_outbox_due")

    table = run("schema", "check", url=any_url)
    data = run("schema", "check", "--json", url=any_url)

    line = "ix_outbox_due  the index is missing; run `pillarbox schema apply`\n"
    assert (table.exit_code, table.stdout) == (3, line)
    assert data.exit_code == 3
    assert json.loads(data.stdout)["findings"] == [
        {
            "code": "index-missing",
            "subject": "ix_outbox_due",
            "problem": "the index is missing",
            "remedy": "run `pillarbox schema apply`",
        }
    ]


def test_an_error_is_one_line_without_a_traceback(database_url: str) -> None:
    run("schema", "apply", url=database_url)

    refused = run("schema", "apply", "--shards", "32", url=database_url)

    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[1].startswith("Error: [invalid-config] shards is 32")
    assert len(refused.stderr.splitlines()) == 2


def test_a_database_that_is_not_there_is_one_line_without_the_password() -> None:
    result = run("schema", "check", url="postgresql://u:secret@127.0.0.1:1/d")

    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 2
    assert "secret" not in result.output
    assert "127.0.0.1" in result.stderr


def test_checking_a_file_that_is_not_there_does_not_make_it(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"

    result = run("schema", "check", url=f"sqlite:///{file}")

    assert result.exit_code == 1
    assert "a file that does not exist" in result.stderr
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["schema", "chekc"], "Did you mean 'check'?"),
        (["shema"], "Did you mean 'schema'?"),
        (["schema", "check"], "Missing option '--database-url'"),
        (["schema", "apply", "--shard", "2"], "--shards"),
    ],
)
def test_a_wrong_call_has_exit_code_2_and_a_hint(arguments: list[str], hint: str) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert hint in result.stderr


def test_the_printed_sql_is_deterministic_and_nothing_else() -> None:
    first, second = (
        run("schema", "sql", "--schema", "shop"),
        run("schema", "sql", "--schema", "shop"),
    )

    assert first.stdout == second.stdout
    assert first.stderr == ""
    assert first.stdout.startswith("BEGIN;")
    assert first.stdout.endswith("COMMIT;\n")
    assert "@{" not in first.stdout


def test_the_printed_sql_and_grants_run_as_they_are(database_url: str) -> None:
    printed = [
        run("schema", "sql", "--schema", "shop", "--partitioned").stdout,
        run("schema", "grants", "--schema", "shop", "--tenancy").stdout,
    ]
    with engine_of(database_url).connect() as connection:
        for text in printed:
            connection.exec_driver_sql(text, execution_options={"no_parameters": True})
            connection.commit()

    checked = run("schema", "check", "--schema", "shop", "--tenancy", url=database_url)

    assert (checked.exit_code, checked.stdout) == (0, "ok: the schema is as it should be\n")


@pytest.mark.parametrize(
    "command", [[], ["schema"], ["schema", "sql"], ["schema", "apply"], ["schema", "check"]]
)
def test_help_shows_examples_before_options(command: list[str]) -> None:
    text = run(*command, "--help").stdout

    assert 0 < text.index("Examples:") < text.index("Options:")


def test_the_version_is_printed() -> None:
    assert run("--version").stdout.startswith("pillarbox 0.")
