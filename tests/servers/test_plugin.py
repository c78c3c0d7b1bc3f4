import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = """
def test_one(redis_server): ...
def test_two(redis_server): ...
def test_three(nats_server):
    assert nats_server.running
"""


def run(tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run three tests where Redis is missing."""
    (tmp_path / "test_few.py").write_text(TESTS)
    cleared = {name: value for name, value in os.environ.items() if name != "CI"}
    options = ("-p", "no:cacheprovider", "-c", "pyproject.toml", "--rootdir", str(ROOT))
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=ROOT,
        env={**cleared, "PATH": os.devnull, **env},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_missing_server_skips_its_tests_with_one_line_and_stands_in_the_table(
    tmp_path: Path,
) -> None:
    done = run(tmp_path)

    skipped = [line for line in done.stdout.splitlines() if "redis IS MISSING" in line]
    assert done.returncode == 0, done.stdout
    assert len(skipped) == 1
    assert skipped[0].startswith("SKIPPED [2]")
    assert "run `make servers`" in skipped[0]
    assert "redis       SKIPPED: redis-server is not installed" in done.stdout
    assert "nats        ran (2." in done.stdout
    assert "kafka       not used" in done.stdout


def test_a_missing_server_fails_the_run_in_ci(tmp_path: Path) -> None:
    done = run(tmp_path, CI="true")

    assert done.returncode == 1
    assert "redis IS MISSING: redis-server is not installed" in done.stdout
    assert "redis       FAILED: redis-server is not installed" in done.stdout
