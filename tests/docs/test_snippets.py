"""Every Python block of the docs runs as written, on a real database; the tutorial has its own tests.

The blocks of one page run in order, in one module, with `await` allowed at the top. Each page finds
what the guides' start page names: `database_url`, `engine`, `session_factory`, `sync_engine` and
`sync_session_factory`. Tables that a block maps are created after it.
"""

import ast
import inspect
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import FunctionType, ModuleType

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, sessionmaker

from pillarbox.database import async_url, sync_url

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"^ *```(\w+)", re.MULTILINE)
LANGUAGES = {"python", "bash", "text", "sql", "ini", "toml", "mermaid"}


def blocks(page: Path) -> list[tuple[int, str]]:
    """Return a page's Python blocks, each with the line before its first."""
    text = page.read_text()
    return [(text[: found.start(1)].count("\n"), found[1]) for found in _BLOCK.finditer(text)]


# The tutorial shows parts of programs, which run as a whole in tests/tutorial.
PAGES = sorted(
    page for page in DOCS.rglob("*.md") if blocks(page) and page.parent.name != "tutorial"
)


@pytest.fixture
async def page_module(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ModuleType]:
    """A module with the names that every page may use."""
    monkeypatch.setenv("PILLARBOX_DATABASE_URL", database_url)
    engine = create_async_engine(async_url(database_url))
    sync_engine = create_engine(sync_url(database_url))
    module = ModuleType("docs_page")
    vars(module).update(
        database_url=database_url,
        engine=engine,
        session_factory=async_sessionmaker(engine, expire_on_commit=False),
        sync_engine=sync_engine,
        sync_session_factory=sessionmaker(sync_engine, expire_on_commit=False),
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    yield module
    await engine.dispose()
    sync_engine.dispose()


async def run(page: Path, line: int, block: str, module: ModuleType) -> None:
    source = "\n" * line + block
    code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = FunctionType(code, vars(module))()
    if inspect.iscoroutine(result):
        await result


async def create_tables(engine: AsyncEngine, module: ModuleType) -> None:
    """Make the tables of what a block mapped; a base class of the user's is enough to find them."""
    for found in list(vars(module).values()):
        is_class = isinstance(found, type) and found is not DeclarativeBase
        if is_class and issubclass(found, DeclarativeBase):
            async with engine.begin() as connection:
                await connection.run_sync(found.metadata.create_all)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
async def test_the_snippets_of_a_page_run_as_written(page: Path, page_module: ModuleType) -> None:
    for line, block in blocks(page):
        await run(page, line, block, page_module)
        await create_tables(page_module.engine, page_module)


@pytest.mark.parametrize(
    "page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.relative_to(DOCS).as_posix()
)
def test_a_page_uses_known_languages_and_no_block_escapes_the_run(page: Path) -> None:
    text = page.read_text()

    assert set(_FENCE.findall(text)) <= LANGUAGES
    assert text.count("```python") == len(blocks(page))


def test_the_guides_are_full_of_snippets() -> None:
    assert len(PAGES) >= 8
