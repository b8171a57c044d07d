"""What an import loads, seen in a fresh process: import-linter reads statements, this one runs them."""

import json
import subprocess
import sys
from typing import NamedTuple

import pytest

from tests.architecture.house import ROOT, modules, room_of

MODEL = {"torch", "ray", "transformers", "datasets", "accelerate"}
STORAGE = {"zarr", "pyarrow", "obstore", "tensorstore"}
SERVER = {"fastapi", "starlette", "uvicorn"}
PYDANTIC = {"pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}


class Light(NamedTuple):
    """Packages, each with all that is in it but some, and what none of them may load."""

    packages: tuple[str, ...]
    forbidden: set[str]
    but: tuple[str, ...] = ()


LIGHT: dict[str, Light] = {
    "the console command": Light(("datagen.cli",), MODEL | STORAGE | SERVER | {"numpy"}),
    "the store and who looks into it": Light(
        ("datagen.store", "datagen.commands.show", "datagen.commands.verify"), MODEL | SERVER
    ),
    "settings and prompts": Light(
        ("datagen.arguments", "datagen.config", "datagen.prompts"), MODEL | SERVER | {"zarr"}
    ),
    "an engine that was not asked for": Light(
        ("datagen.engines.settings", "datagen.engines.opening", "datagen.engines.synthetic"),
        MODEL | SERVER | STORAGE,
    ),
    "the service": Light(("service",), MODEL, but=("service.client.stream", "service.trainers")),
    "the client, its stream apart": Light(
        ("service.client", "service.wire"), MODEL | STORAGE | SERVER, but=("service.client.stream",)
    ),
}
LOADED = (
    "import importlib, json, sys; before = set(sys.modules); "
    "[importlib.import_module(name) for name in sys.argv[1:]]; "
    "print(json.dumps(sorted(set(sys.modules) - before)))"
)


def loaded_by(names: list[str]) -> set[str]:
    """Return the top-level modules that a fresh process loads for `names`, what it starts with left out."""
    run = subprocess.run(
        [sys.executable, "-c", LOADED, *names], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return {room_of(name) for name in json.loads(run.stdout)}


def modules_of(package: str) -> list[str]:
    return [
        module.name
        for module in modules(room_of(package))
        if module.name == package or module.name.startswith(f"{package}.")
    ]


@pytest.mark.parametrize("name", LIGHT)
def test_what_is_light_loads_nothing_heavy(name: str) -> None:
    light = LIGHT[name]
    left_out = {name for package in light.but for name in modules_of(package)}
    names = {
        package: [name for name in modules_of(package) if name not in left_out] for package in light.packages
    }
    assert all(names.values()), f"expected modules of each package, got {names}"
    assert not loaded_by([module for found in names.values() for module in found]) & light.forbidden


def test_the_core_is_the_standard_library_and_pydantic() -> None:
    loaded = loaded_by(modules_of("schemas"))
    private = {name for name in loaded if name.startswith("_")}
    assert loaded - private - set(sys.stdlib_module_names) - PYDANTIC == {"schemas"}


def test_a_heavy_import_is_seen() -> None:
    assert "numpy" in loaded_by(["datagen.store.dtypes"])
