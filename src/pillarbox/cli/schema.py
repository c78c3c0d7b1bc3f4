"""`pillarbox schema`: print, apply and check the tables, print the grants."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import click
from sqlalchemy import URL, Connection, create_engine
from sqlalchemy.pool import NullPool

from pillarbox.cli.group import DRIFT, Group
from pillarbox.database import shown, sync_url
from pillarbox.errors import SchemaMissing
from pillarbox.schema import check as find_drift
from pillarbox.schema import plan, schema_sql
from pillarbox.schema.drift import Finding
from pillarbox.schema.options import APPLICATION_ROLE, PROJECTOR_ROLE, SchemaOptions
from pillarbox.schema.policies import grants_sql, policies_sql
from pillarbox.tenancy import Tenancy

_Command = TypeVar("_Command", bound=Callable[..., Any])

_database_url = click.option(
    "--database-url",
    envvar="PILLARBOX_DATABASE_URL",
    show_envvar=True,
    required=True,
    metavar="URL",
    help="postgresql://user@host/name or sqlite:///file.db",
)
_schema = click.option(
    "--schema",
    envvar="PILLARBOX_SCHEMA",
    show_envvar=True,
    metavar="NAME",
    help="Schema that holds the tables.  [default: first of the search path]",
)
_tenancy = click.option(
    "--tenancy/--no-tenancy",
    default=lambda: Tenancy.from_env().required,
    help="With roles, grants and row-level security.  [default: on if PILLARBOX_TENANCY=required]",
)
_shards = click.option(
    "--shards",
    type=int,
    metavar="N",
    help="Power of two from 1 to 1024, chosen once.  [default: as it is, else 64]",
)


def _partitioned(command: _Command) -> _Command:
    return click.option(
        "--partitioned",
        is_flag=True,
        default=None,
        help="Partition the outbox by days, chosen once.",
    )(command)


def _roles(command: _Command) -> _Command:
    for name, role in (("projector", PROJECTOR_ROLE), ("application", APPLICATION_ROLE)):
        command = click.option(
            f"--{name}-role",
            default=role,
            show_default=True,
            metavar="NAME",
            help=f"Group role of the {name}.",
        )(command)
    return command


@click.group(
    cls=Group,
    examples=[
        "pillarbox schema sql > outbox.sql    read it before it runs",
        "pillarbox schema apply               create or extend the tables",
        "pillarbox schema apply --tenancy     with roles and row-level security",
        "pillarbox schema check --json        exit code 3 when something differs",
    ],
)
def schema() -> None:
    """Create, extend and check the outbox tables."""


@schema.command(
    examples=[
        "pillarbox schema sql --schema shop | psql",
        "pillarbox schema sql --dialect sqlite | sqlite3 shop.db",
    ]
)
@_schema
@_partitioned
@_shards
@_tenancy
@_roles
@click.option(
    "--dialect",
    type=click.Choice(["postgresql", "sqlite"]),
    default="postgresql",
    show_default=True,
    help="Database that the SQL is for.",
)
def sql(dialect: str, **options: Any) -> None:
    """Print the SQL of a new schema; it can be run more than once."""
    click.echo(schema_sql(SchemaOptions(**options), dialect=dialect), nl=False)


@schema.command(
    examples=[
        "pillarbox schema apply --database-url postgresql://owner@localhost/shop",
        "pillarbox schema apply --partitioned --tenancy",
    ]
)
@_database_url
@_schema
@_partitioned
@_shards
@_tenancy
@_roles
def apply(database_url: str, **options: Any) -> None:
    """Create the tables, or bring them up to date.

    Everything happens in one transaction; repeating it is harmless, and makes new partitions. Run
    it as the owner of the tables, not as the application.
    """
    began = perf_counter()
    with _connected(database_url) as connection:
        for step in plan(connection, SchemaOptions(**options)):
            start = perf_counter()
            step.run(connection)
            click.echo(f"  {step.title:<42} {_milliseconds(start)}", err=True)
        findings = find_drift(connection, SchemaOptions(**options))
    click.echo(f"  {'done':<42} {_milliseconds(began)}", err=True)
    _say(findings)


@schema.command(
    examples=["pillarbox schema check", "pillarbox schema check --tenancy --json | jq '.findings'"]
)
@_database_url
@_schema
@_partitioned
@_shards
@_tenancy
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def check(database_url: str, as_json: bool, **options: Any) -> None:
    """Find what differs from this version.

    Exit code 0: nothing; 3: something, listed with what to do about it.
    """
    refuse_to_create(sync_url(database_url))
    with _connected(database_url) as connection:
        findings = find_drift(connection, SchemaOptions(**options))
    if as_json:
        report = {"ok": not findings, "findings": [asdict(finding) for finding in findings]}
        click.echo(json.dumps(report, indent=2))
    else:
        click.echo("\n".join(_table(findings)) if findings else "ok: the schema is as it should be")
    if findings:
        raise SystemExit(DRIFT)


@schema.command(examples=["pillarbox schema grants --schema shop | psql"])
@_schema
@_tenancy
@_roles
def grants(tenancy: bool, **options: Any) -> None:
    """Print roles and grants of application and projector.

    Login roles become members: GRANT pillarbox_app TO shop;
    """
    chosen = SchemaOptions(tenancy=tenancy, **options)
    click.echo(grants_sql(chosen) + (policies_sql(chosen) if tenancy else ""), nl=False)


def refuse_to_create(url: URL) -> None:
    """Raise for a file that is not there; SQLite would make an empty one."""
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
        raise SchemaMissing(f"{url.database}, a file that does not exist")


@contextmanager
def _connected(database_url: str) -> Iterator[Connection]:
    """Open one transaction, and say on stderr where."""
    url = sync_url(database_url)
    engine = create_engine(url, poolclass=NullPool)
    click.echo(f"database {shown(url)}", err=True)
    with engine.begin() as connection:
        yield connection


def _say(findings: list[Finding]) -> None:
    """Name what remains after an apply, which a person must mend."""
    for line in _table(findings):
        click.echo(line, err=True)
    if findings:
        raise SystemExit(DRIFT)


def _table(findings: list[Finding]) -> Iterator[str]:
    width = max((len(finding.subject) for finding in findings), default=0)
    for finding in findings:
        yield f"{finding.subject:<{width}}  {finding.problem}; {finding.remedy}"


def _milliseconds(since: float) -> str:
    return f"{(perf_counter() - since) * 1000:7.1f} ms"
