"""The contracts of import-linter hold, and each of them can fail."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.house import ROOMS, ROOT

LINT = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"

# A breach of each contract: the module that is changed, and the import that it must not have.
BREACHES: dict[str, tuple[str, str]] = {
    "imports point one way: schemas <- datagen <- service": ("schemas/problem.py", "datagen.errors"),
    "the service knows of datagen nothing but the store": ("service/planted.py", "datagen.planning.units"),
    "datagen reads top to bottom, the store below all": ("datagen/store/keys.py", "datagen.errors"),
    "the domain core stays pure": ("schemas/problem.py", "numpy"),
    "the store knows no model and no cluster": ("datagen/store/keys.py", "torch"),
    "the service needs no model stack": ("service/planted.py", "transformers"),
    "a trainer's client needs no server and no storage": ("service/client/rows.py", "datagen.store.keys"),
    "settings are read without a model stack": ("datagen/config.py", "transformers"),
    "torch only in the engines, in replay, in other libraries' file formats and in the client's stream": (
        "datagen/planning/units.py",
        "torch",
    ),
    "a trainer's own packages only in its plug-in point": ("service/served/catalog.py", "hs_connectors"),
    "ray only in the fleet and its worker": ("datagen/driver/driver.py", "ray"),
    "what a request is answered with knows no server": ("service/served/catalog.py", "uvicorn"),
    "fastapi only in the app and its routes": ("service/served/catalog.py", "fastapi"),
    "no import cycles between siblings": ("datagen/store/errors.py", "datagen.store.local"),
}


def verdicts(folder: Path) -> dict[str, str]:
    """Return what import-linter says of each contract: `KEPT` or `BROKEN`."""
    run = subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache"],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    said = dict(re.findall(r"^(.+?) (KEPT|BROKEN)\b", run.stdout, re.MULTILINE))
    assert said, run.stdout + run.stderr
    assert (run.returncode == 0) == (set(said.values()) == {"KEPT"})
    return said


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the house's source that may be broken."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_contract_holds() -> None:
    assert verdicts(ROOT) == dict.fromkeys(contracts(), "KEPT")


def contracts() -> list[str]:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [table["name"] for table in tables]


def test_every_contract_can_fail(copy: Path) -> None:
    for module, name in BREACHES.values():
        with (copy / module).open("a", encoding="utf-8") as file:
            file.write(f"\nimport {name}\n")
    assert verdicts(copy) == dict.fromkeys(contracts(), "BROKEN")


def test_a_new_module_must_be_placed_and_the_service_may_read_the_store(copy: Path) -> None:
    (copy / "datagen/unplaced.py").write_text('"""A module that nobody placed."""\n')
    (copy / "service/planted.py").write_text("import datagen.store.keys\n")
    placed = "datagen reads top to bottom, the store below all"
    assert verdicts(copy) == dict.fromkeys(contracts(), "KEPT") | {placed: "BROKEN"}
