"""What an image holds: the service and the client, each installed as it is into an environment of its own.

They are built from what `.dockerignore` lets into an image, with the pinned packages, away from the checkout.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from datagen.store.sample_data import SampleData
from service.access.keys import KeyFile
from service.client import Client
from tests.service.serving import make_dataset

ROOT = Path(__file__).parents[2]
MODEL_STACK = {"torch", "ray", "transformers", "accelerate", "datasets", "safetensors"}
SERVER_STACK = {"fastapi", "starlette", "uvicorn", "zarr", "pyarrow", "obstore", "ml_dtypes", "rich"}
CLIENTS = {
    "annotated-types",
    "awscrt",
    "numpy",
    "pydantic",
    "pydantic_core",
    "strata-hidden-states",
    "typing-inspection",
    "typing_extensions",
}
"""All that a trainer installs with the client: three packages, and what pydantic brings."""

ASKED = """
import importlib.util, json, sys
from importlib.metadata import distributions
print(json.dumps({
    "found": [name for name in sys.argv[1:] if importlib.util.find_spec(name)],
    "distributions": sorted({found.metadata["Name"] for found in distributions()} - {"pip", "setuptools"}),
}))
"""

FETCH = """
import json, sys
from service.client import Client
url, key, sample_id = sys.argv[1:]
with Client(url, key, direct=False) as client:
    rows = client.version("demo", 1).tensors(sample_id)
    arrays = {**rows.tensors, **rows.tokens}
    print(json.dumps({name: array.tobytes().hex() for name, array in arrays.items()}))
"""

pytestmark = pytest.mark.slow


def context(folder: Path) -> Path:
    """Copy what `.dockerignore` lets through, as `COPY . .` has it."""
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line.startswith("!"):
            source, made = ROOT / line[1:], folder / line[1:]
            made.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, made, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, made)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("wheel")
    source = context(tmp_path_factory.mktemp("context"))
    pip("wheel", "--no-deps", "--wheel-dir", str(built), str(source))
    (found,) = built.glob("*.whl")
    return found


def pip(*words: str) -> None:
    """Run this environment's pip; what it says is told when it fails."""
    told = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr


def environment(folder: Path, wanted: str) -> Path:
    """Make a fresh environment that has `wanted` and nothing else, and return its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    constraints = str(ROOT / "deploy" / "constraints-cpu.txt")
    pip("--python", str(folder / "bin" / "python"), "install", "--no-compile", "-c", constraints, wanted)
    return folder / "bin"


@pytest.fixture(scope="module")
def service_bin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("service"), f"{wheel}[service]")


@pytest.fixture(scope="module")
def client_bin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("client"), str(wheel))


def run(programs: Path, text: str, *words: str) -> str:
    """Run Python text in an environment, away from the checkout."""
    ran = subprocess.run(
        [programs / "python", "-c", text, *words],
        cwd=programs,
        env=outside(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def outside() -> dict[str, str]:
    """Return the environment without what leads back to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@contextmanager
def serving(programs: Path, root: Path, keys: Path) -> Iterator[str]:
    """Run `strata serve` as an image does, and give its URL; it ends well when it is told to."""
    words = ["serve", "--root", str(root), "--port", "0", "--keys", str(keys)]
    started = [str(programs / "strata"), *words]
    with subprocess.Popen(started, cwd=root, env=outside(), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            assert " at http://" in said, said
            yield said.split(" at ", 1)[1].split()[0]
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
        finally:
            server.kill()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SampleData]:
    root = tmp_path_factory.mktemp("states")
    return root, make_dataset(root, lengths=(3, 70))[1]


def bits(array: NDArray[np.generic]) -> str:
    return array.tobytes().hex()


def test_the_service_needs_no_model_stack(service_bin: Path) -> None:
    assert json.loads(run(service_bin, ASKED, *MODEL_STACK))["found"] == []


def test_the_client_is_light(client_bin: Path) -> None:
    told = json.loads(run(client_bin, ASKED, *MODEL_STACK, *SERVER_STACK))
    assert told["found"] == []
    assert set(told["distributions"]) == CLIENTS


def test_a_sample_goes_from_one_to_the_other(
    service_bin: Path, client_bin: Path, data: tuple[Path, SampleData], tmp_path: Path
) -> None:
    """Served by the one environment and fetched in the other, it is what was written, bit for bit."""
    root, sample = data
    keys = tmp_path / "keys.json"
    key = KeyFile(keys).create("trainer", "read", ("demo",)).written
    with serving(service_bin, root, keys) as url:
        got = json.loads(run(client_bin, FETCH, url, key, sample.sample_id))
        with Client(url, key, direct=False) as client:
            assert [found.name for found in client.datasets()] == ["demo"]
    assert got == {name: bits(array) for name, array in {**sample.tensors, **sample.tokens}.items()}


def test_the_service_can_look_at_what_it_serves(service_bin: Path, data: tuple[Path, SampleData]) -> None:
    root, _ = data
    for command in ("show", "verify"):
        ran = subprocess.run(
            [service_bin / "strata", command, root / "demo"], env=outside(), capture_output=True, check=False
        )
        assert ran.returncode == 0, ran.stderr


def test_a_command_whose_packages_are_not_there_says_which_extra_brings_them(client_bin: Path) -> None:
    for command, extra in (("serve", "service"), ("run", "datagen")):
        ran = subprocess.run(
            [client_bin / "strata", command], env=outside(), capture_output=True, text=True, check=False
        )
        assert ran.returncode == 2
        assert f"[{extra}]" in ran.stderr
