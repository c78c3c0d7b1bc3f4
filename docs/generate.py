# ruff: noqa: INP001 - a script, which nothing imports as a module
"""Write the pages that are made from the code and from measurements.

Errors, tables, brokers and the command line come from the code, speed from `benchmarks/results`.

The sentences that no code can give stand in `notes.toml`. `tests/docs/test_generated.py` holds the
pages to what this script makes; run it after a change: `.venv/bin/python docs/generate.py`.
"""

import ast
import inspect
import json
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
from sqlalchemy import CheckConstraint, Column, Table
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.schema import CreateColumn, CreateIndex

from pillarbox.bus.connect import bus_from_url
from pillarbox.bus.message_bus import Capabilities
from pillarbox.cli.main import main as command_line
from pillarbox.errors import PillarboxError
from pillarbox.event.rules import KAFKA, MEMORY, NATS, PORTABLE, PULSAR, RABBITMQ, REDIS, BusRules
from pillarbox.idempotency import errors as idempotency_errors
from pillarbox.schema.tables import metadata
from pillarbox.servers import errors as server_errors
from pillarbox.uow import joining, outcome

DOCS: Final = Path(__file__).parent
RESULTS: Final = DOCS.parent / "benchmarks" / "results"
MADE: Final = "<!-- Made by docs/generate.py; change the code or docs/notes.toml instead. -->\n"
HELP_WIDTH: Final = 88
POSTGRESQL: Final = PGDialect_psycopg()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it so
# The modules that define errors must be imported before the tree is walked.
ERROR_MODULES: Final = (idempotency_errors, joining, outcome, server_errors)
KEYS: Final = ("5,000 even keys", "10 hot keys", "Zipf")
BROKERS: Final = (KAFKA, PULSAR, NATS, RABBITMQ, REDIS, MEMORY)


def pages() -> dict[str, str]:
    """Return every generated page by its path below the docs folder."""
    notes = tomllib.loads((DOCS / "notes.toml").read_text())
    errors = {f"errors/{kind.code}.md": error_page(kind, notes["errors"]) for kind in all_errors()}
    return errors | {
        "errors/index.md": errors_index(),
        "reference/tables.md": tables_page(notes),
        "reference/brokers.md": brokers_page(notes["brokers"]),
        "reference/speed.md": speed_page(notes["speed"]),
        "reference/cli.md": cli_page(),
    }


def all_errors(kind: type[PillarboxError] = PillarboxError) -> Iterator[type[PillarboxError]]:
    """Walk the tree of errors, parents first."""
    yield kind
    for child in sorted(kind.__subclasses__(), key=lambda found: found.__name__):
        if child.__module__.startswith("pillarbox."):
            yield from all_errors(child)


def error_page(kind: type[PillarboxError], notes: dict[str, dict[str, str]]) -> str:
    """Return the page of one error."""
    note = notes[kind.code]
    summary, _, more = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")
    parts = [
        MADE,
        f"# {kind.__name__}\n",
        _lineage(kind),
        f"{summary}\n",
        *([f"{more}\n"] if more else []),
        f"## What it means for delivery\n\n{note['means']}\n",
        f"## What to do\n\n{note['do']}\n",
    ]
    if fields := error_fields(kind):
        listed = "\n".join(f"- `{name}`" for name in fields)
        parts.append(f"## Fields\n\nThe error carries these as attributes:\n\n{listed}\n")
    return "\n".join(parts)


def error_fields(kind: type[PillarboxError]) -> list[str]:
    """Return the attributes that an error's constructors set, in their order."""
    fields: dict[str, None] = {}
    for owner in reversed(kind.__mro__):
        if "__init__" not in owner.__dict__ or not issubclass(owner, PillarboxError):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner.__dict__["__init__"])))
        stored = (
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        )
        fields |= dict.fromkeys(stored)
    return list(fields)


def errors_index() -> str:
    """Return the list of all errors, as the tree they are."""
    lines = [MADE, "# Errors\n"]
    lines.append(
        "Every error derives from `PillarboxError` and has a stable `code`. The command line "
        "prints the code before the message; its page has the same name. Errors other than "
        "`PillarboxError` and `CommitUnknown` are imported from `pillarbox.errors`, those of "
        "servers from `pillarbox.servers`.\n"
    )
    for kind in all_errors():
        summary = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        indent = "    " * len(_parents(kind))
        lines.append(f"{indent}- [`{kind.__name__}`]({kind.code}.md) (`{kind.code}`): {summary}")
    return "\n".join(lines) + "\n"


def tables_page(notes: dict[str, Any]) -> str:
    """Return the page of tables, columns and indexes."""
    tables = sorted(metadata.sorted_tables, key=lambda table: (table.name != "outbox", table.name))
    parts = [MADE, "# Tables and indexes\n", notes["tables"]["intro"]]
    parts += [_table_section(table, notes["tables"], notes["columns"]) for table in tables]
    parts.append(notes["tables"]["view"])
    return "\n".join(parts)


def cli_page() -> str:
    """Return the help of every command."""
    intro = (
        "Data go to standard output, messages to standard error. Exit codes: 0 done, 1 failed, "
        "2 wrong use, 3 drift found. An option wins over its variable.\n"
    )
    parts = [MADE, "# Command line\n", intro]
    parts += [_command_section(path, command) for path, command in _commands("pillarbox")]
    return "\n".join(parts)


def brokers_page(notes: dict[str, Any]) -> str:
    """Return what each bus can do, from the flags that the contract suite verifies."""
    rows = [(rules, notes[rules.name]) for rules in BROKERS]
    parts = [
        MADE,
        "# Brokers\n",
        notes["intro"],
        _rows("Broker", "Bus", "URL", "Order in flight", "Removes duplicates", "Largest message"),
        *(_flags_row(rules, note) for rules, note in rows),
        notes["columns"].format(
            count=PORTABLE.headers_max_count,
            size=f"{PORTABLE.headers_max_bytes:,}",
            seconds=f"{Capabilities(PORTABLE).publish_timeout.total_seconds():.0f}",
        ),
        _rows("Broker", "What keeps the events of a key together", "CloudEvents"),
        *(f"| {note['name']} | {note['together']} | {note['cloudevents']} |" for _, note in rows),
        notes["outro"],
    ]
    return "\n".join(parts)


def speed_page(notes: dict[str, Any]) -> str:
    """Return what was measured, suite by suite; a suite without a result is left out."""
    parts = [MADE, "# Speed\n", notes["intro"], _brokers_reach(notes["brokers"])]
    for suite, about in notes["suites"].items():
        if not (found := _result(suite)):
            continue
        parts += [f"## {suite}\n", f"{about}\n"]
        parts.append(_rows("Measure", "Ours", "Reference", "Its value", "Ratio", "Bar", "Holds"))
        parts += [_measure_row(row) for row in found["rows"]]
        parts += [_histogram(each) for each in found["histograms"]]
        parts.append(f"\n{_machine(found['machine'])} {_when(found['rows'])}\n")
    return "\n".join(parts)


def _brokers_reach(brokers: list[dict[str, str]]) -> str:
    """Return events a second by broker, beside what its answer promises."""
    lines = [_rows("Broker", "What its answer promises", *KEYS, "Beside a loop by hand")]
    for broker in brokers:
        if not (result := _result(broker["suite"])):
            continue
        rows = {row["measure"]: row for row in result["rows"]}
        found = [row for keys in KEYS if (row := rows.get(f"{broker['mode']}{keys}"))]
        if len(found) < len(KEYS):  # A suite may be measured in parts.
            continue
        rates = " | ".join(f"{row['value']:,.0f}/s" for row in found)
        ratios = ", ".join(f"{row['ratio']:.2f}" for row in found)
        lines.append(f"| {broker['name']} | {broker['promise']} | {rates} | {ratios} |")
    return "\n".join(lines) + "\n"


def _result(suite: str) -> dict[str, Any]:
    path = RESULTS / f"{suite}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _measure_row(row: dict[str, Any]) -> str:
    unit, holds = row["unit"], {True: "yes", False: "no", None: ""}[row["holds"]]
    ours, theirs = (f"{_figure(row[name])} {unit}" for name in ("value", "reference_value"))
    ratio, bar = f"{row['ratio']:.2f}", row["bar"] or ""
    cells = (row["measure"], ours, row["reference"], theirs, ratio, bar, holds)
    return f"| {' | '.join(cells)} |"


def _histogram(found: dict[str, Any]) -> str:
    """Return the share of the values within each limit."""
    titles = [f"≤ {limit:g} {found['unit']}" for limit in found["limits"]]
    shares = " | ".join(f"{share:.1%}" for share in found["shares"])
    return f"\n{_rows(found['measure'], *titles)}\n| share | {shares} |"


def _figure(value: float) -> str:
    return f"{value:,g}"


def _machine(machine: dict[str, Any]) -> str:
    parts = {"Python": machine["python"]} | machine["servers"] | machine["packages"]
    named = ", ".join(f"{name} {version}" for name, version in parts.items())
    return f"{machine['cores']} cores, {machine['memory_gib']:g} GiB; {named}."


def _when(rows: list[dict[str, Any]]) -> str:
    """Return the days of the measurements, and how busy the machine was with other work."""
    days, loads = ({row[name] for row in rows} for name in ("measured", "load_at_start"))
    return f"Measured {_from_to(days)}, load at the start {_from_to(loads)}."


def _from_to(values: set[Any]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"


def _rows(*titles: str) -> str:
    return f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|"


def _flags_row(rules: BusRules, note: dict[str, str]) -> str:
    bus = bus_from_url(f"{rules.schemes[0]}://localhost")
    found: Capabilities = bus.capabilities
    schemes = ", ".join(f"`{scheme}://`" for scheme in rules.schemes)
    order, copies = _yes(found.pipelines_keys), _yes(found.deduplicates)
    limit = f"{found.rules.message_max_bytes:,} bytes"
    return f"| {note['name']} | `{type(bus).__name__}` | {schemes} | {order} | {copies} | {limit} |"


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _lineage(kind: type[PillarboxError]) -> str:
    line = f"Code `{kind.code}`."
    if parents := _parents(kind):
        line += f" A kind of [`{parents[-1].__name__}`]({parents[-1].code}.md)."
    return f"{line}\n"


def _parents(kind: type[PillarboxError]) -> list[type[PillarboxError]]:
    return [owner for owner in reversed(kind.__mro__[1:]) if issubclass(owner, PillarboxError)]


def _table_section(table: Table, about: dict[str, str], columns: dict[str, dict[str, str]]) -> str:
    meanings = columns[table.name]
    lines = [
        f"## {table.name}\n",
        f"{about[table.name]}\n",
        "| Column | Type | Meaning |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{column.name}` | `{_type_of(column)}` | {meanings[column.name]} |"
        for column in table.columns
    ]
    key = ", ".join(column.name for column in table.primary_key)
    lines.append(f"\nPrimary key: `({key})`.\n")
    if indexes := sorted(table.indexes, key=lambda index: str(index.name)):
        definitions = (str(CreateIndex(index).compile(dialect=POSTGRESQL)) for index in indexes)
        statements = "\n".join(f"{' '.join(definition.split())};" for definition in definitions)
        lines.append(f"```sql\n{statements}\n```\n")
    checks = sorted(
        (str(check.name), str(check.sqltext))
        for check in table.constraints
        if isinstance(check, CheckConstraint)
    )
    lines += [f"Check `{name}`: `{condition}`.\n" for name, condition in checks]
    return "\n".join(lines)


def _type_of(column: Column[Any]) -> str:
    """Return a column's type and default as PostgreSQL reads them."""
    written = str(CreateColumn(column).compile(dialect=POSTGRESQL))
    return written.removeprefix(f"{column.name} ").replace(' COLLATE "C"', "").strip()


def _commands(
    name: str, command: click.Command = command_line
) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for child in sorted(command.commands):
            yield from _commands(f"{name} {child}", command.commands[child])


def _command_section(path: str, command: click.Command) -> str:
    context = click.Context(
        command,
        info_name=path,
        terminal_width=HELP_WIDTH,
        max_content_width=HELP_WIDTH,
        help_option_names=["-h", "--help"],
    )
    lines = [line.rstrip() for line in command.get_help(context).splitlines()]
    return f"## {path}\n\n```text\n{chr(10).join(lines)}\n```\n"


def main() -> None:
    """Write the pages; remove those of errors that are gone."""
    made = pages()
    for page in (DOCS / "errors").glob("*.md"):
        if page.relative_to(DOCS).as_posix() not in made:
            page.unlink()
    for path, text in made.items():
        (DOCS / path).write_text(text)


if __name__ == "__main__":
    main()
