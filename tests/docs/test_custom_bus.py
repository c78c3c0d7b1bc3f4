"""The bus of the guide passes the contract suite, as a user would run it."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "custom-bus.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OPTIONS = ("-q", "-rs", "-W", "error", "-o", "asyncio_default_fixture_loop_scope=function")


def test_the_bus_of_the_guide_passes_the_contract_suite(tmp_path: Path) -> None:
    bus, _, rig = _BLOCK.findall(PAGE.read_text())
    (tmp_path / "test_file_bus.py").write_text(bus + rig)

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, "test_file_bus.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"\d\d passed", ran.stdout)
    assert "failed" not in ran.stdout
