"""The pytest plugin in a project of a user's: what it needs to be told, and what it costs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox.database import make_engine
from pillarbox.schema import apply

SCOPE = "asyncio_default_fixture_loop_scope = function\n"
ASYNC_TEST = """
async def test_recorded(pillarbox):
    await pillarbox.outbox.add(topic="notes", payload={"n": 1}, key="k")
    assert [event.payload for event in pillarbox.outbox.events] == [{"n": 1}]
    assert (await pillarbox.deliver()).published == 1

async def test_nothing_is_left(pillarbox):
    assert (await pillarbox.deliver()).published == 0
"""
APP = """
from pillarbox import Pillarbox
box = Pillarbox("sqlite:///outbox.db", service="notes")
"""
SEES = """
import sys
def pytest_sessionfinish():
    heavy = {"alembic", "fastapi", "orjson", "pillarbox", "psycopg", "pydantic", "sqlalchemy"}
    print("\\nHEAVY", *sorted(heavy & sys.modules.keys()))
"""


def pytest_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest as a user would, with the plugins that are installed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *words],
        cwd=folder, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip


def write(folder: Path, ini: str = "", **files: str) -> None:
    (folder / "pytest.ini").write_text(f"[pytest]\nasyncio_mode = auto\n{SCOPE}{ini}")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


async def migrate(folder: Path) -> None:
    engine = make_engine(f"sqlite:///{folder / 'outbox.db'}")
    async with engine.begin() as connection:
        await connection.run_sync(apply)
    await engine.dispose()


async def test_the_ini_file_names_the_application(tmp_path: Path) -> None:
    await migrate(tmp_path)
    write(tmp_path, "pillarbox_app = app:box\n", app=APP, test_it=ASYNC_TEST)

    ran = pytest_in(tmp_path, "--strict-markers", "-W", "error")

    assert "2 passed" in ran.stdout, ran.stdout


async def test_a_marker_names_the_application_and_strict_mode_will_do(tmp_path: Path) -> None:
    await migrate(tmp_path)
    marks = (
        "import pytest\npytestmark = [pytest.mark.asyncio, pytest.mark.pillarbox(app='app:box')]\n"
    )
    write(tmp_path, app=APP, test_it=marks + ASYNC_TEST)

    ran = pytest_in(tmp_path, "--strict-markers", "-o", "asyncio_mode=strict")

    assert "2 passed" in ran.stdout, ran.stdout


@pytest.mark.parametrize(
    ("ini", "said"),
    [
        ("", "pillarbox_app is not set"),
        ("pillarbox_app = nowhere:box\n", "names the module 'nowhere', which is not found"),
        ("pillarbox_app = app:nothing\n", "names 'nothing', which is missing"),
    ],
)
def test_an_application_that_is_not_told_is_asked_for(tmp_path: Path, ini: str, said: str) -> None:
    write(tmp_path, ini, app=APP, test_it=ASYNC_TEST)

    ran = pytest_in(tmp_path)

    assert "2 errors" in ran.stdout
    assert said in ran.stdout


def test_without_pytest_asyncio_the_fixture_says_what_is_missing(tmp_path: Path) -> None:
    write(tmp_path, test_it="def test_it(pillarbox): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    ran = pytest_in(tmp_path, "-p", "no:asyncio")

    assert "pip install 'pillarbox[testing]'" in ran.stdout


def test_a_run_that_does_not_use_the_plugin_imports_nothing_of_it(tmp_path: Path) -> None:
    write(tmp_path, conftest=SEES, test_it="def test_it(): pass\n")

    ran = pytest_in(tmp_path, "-s")

    assert "pillarbox-" in ran.stdout  # the plugin is there
    assert "\nHEAVY\n" in ran.stdout.replace("HEAVY \n", "HEAVY\n"), ran.stdout


def test_a_fixture_of_the_users_with_the_same_name_wins(tmp_path: Path) -> None:
    fixture = "import pytest\n@pytest.fixture\ndef pillarbox(): return 'red'\n"
    write(tmp_path, conftest=fixture, test_it="def test_it(pillarbox): assert pillarbox == 'red'\n")

    ran = pytest_in(tmp_path)

    assert "1 passed" in ran.stdout, ran.stdout
