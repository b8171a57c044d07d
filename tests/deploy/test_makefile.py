"""`make` lists every target, and `.ci/run` ends as the tests end."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = shutil.which("make")
OUTSIDE_MAKE = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
"""The environment without what an outer make (`make test`) tells an inner one."""

pytestmark = pytest.mark.skipif(MAKE is None, reason="make is not installed")


def test_help_is_the_default_and_lists_every_target() -> None:
    targets = re.findall(r"^\.PHONY: (\w+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    said = subprocess.run(
        ["make"], cwd=ROOT, env=OUTSIDE_MAKE, capture_output=True, text=True, check=True
    ).stdout
    assert targets[0] == "help"
    assert {"setup", "assets", "demo", "test", "lint", "bench", "clean"} < set(targets)
    assert [line.split()[1] for line in said.splitlines()] == targets


@pytest.mark.parametrize(
    ("lint", "oracle", "tests", "status"),
    [(0, 0, 0, 0), (0, 0, 2, 2), (2, 0, 0, 2), (0, 2, 0, 2), (2, 2, 2, 2)],
    ids=str,
)
def test_the_check_command(tmp_path: Path, lint: int, oracle: int, tests: int, status: int) -> None:
    """`.ci/run` runs all three, prints pytest's closing line last, and its status is theirs."""
    closing = f"{'1 failed, ' if tests else ''}3 passed in 0.12s"
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    (tmp_path / "Makefile").write_text(
        f"lint:\n\t@exit {lint}\noracle-trainers:\n\t@exit {oracle}\n"
        f"test:\n\t@echo '===== {closing} ====='; exit {tests}\n",
        encoding="utf-8",
    )
    ran = subprocess.run(
        [tmp_path / ".ci" / "run"], stdout=subprocess.PIPE, text=True, check=False, env=OUTSIDE_MAKE
    )
    assert ran.returncode == status
    assert ran.stdout.splitlines()[-1] == f"===== {closing} ====="
