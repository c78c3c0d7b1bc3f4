import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox.errors import PillarboxError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
WRITTEN = (
    *sorted(DOCS.rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
)


def made_pages() -> dict[str, str]:
    """Return what docs/generate.py makes now."""
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: dict[str, str] = module.pages()
    return pages


MADE = made_pages()


@pytest.mark.parametrize("path", MADE)
def test_a_generated_page_is_up_to_date(path: str) -> None:
    assert (DOCS / path).read_text() == MADE[path], "run `.venv/bin/python docs/generate.py`"


def test_no_page_is_left_of_an_error_that_is_gone() -> None:
    pages = {page.relative_to(DOCS).as_posix() for page in (DOCS / "errors").glob("*.md")}

    assert pages == {path for path in MADE if path.startswith("errors/")}
    assert f"errors/{PillarboxError.code}.md" in pages


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_list_of_decisions_is_complete() -> None:
    listed = _LINK.findall((DOCS / "decisions" / "README.md").read_text())

    assert listed == sorted(page.name for page in (DOCS / "decisions").glob("0*.md"))


@pytest.mark.skipif(
    shutil.which("zensical", path=str(Path(sys.executable).parent)) is None,
    reason="zensical is not installed",
)
def test_the_pages_build_without_a_warning_and_load_nothing_from_elsewhere(tmp_path: Path) -> None:
    for name in ("docs", "zensical.toml"):
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)

    built = subprocess.run(
        [Path(sys.executable).parent / "zensical", "build", "--clean", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert built.returncode == 0, built.stdout + built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        assert not re.search(r'(?:src|href)="(?:https?:)?//', page.read_text()), page.name
