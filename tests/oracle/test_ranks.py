"""speculators' own loaders on two ranks of two spawned workers: every row once an epoch, the files' bytes."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from datagen.export.exporting import Asked, plan_export, run_export
from datagen.store.local import LocalDoor
from datagen.store.opening import open_door
from deploy.demo.incident.environment import ENVIRONMENT
from tests.datagen.adapters.exports.builders import make_dataset
from tests.datagen.store.bucket_server import needs_moto, new_bucket, s3_server
from tests.oracle.ranked_loader import OUT
from tests.oracle.test_launch import CONFIG
from tests.service.serving import serving

pytestmark = pytest.mark.skipif(
    not (ENVIRONMENT / "speculators").is_dir(), reason="speculators is not installed: run make train-demo"
)
EPOCHS = 2
WORKERS = {"stored": 2, "http": 2, "bucket": 1}
RANKS = 2
LENGTHS = (5, 130, 1, 64, 65, 33, 7, 20, 90, 12, 200, 150, 40, 41, 100, 99, 98, 97, 60, 61)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    make_dataset(root, lengths=LENGTHS)
    return root


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.fixture(scope="module")
def files(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """What one process reads of each row of an export, by the trainer's own `FileTransfer`."""
    out = tmp_path_factory.mktemp("files") / "out"
    run_export(plan_export(Asked(f"{root}/states", "speculators", out)), workers=1)
    rows = read(out.parent, [sys.executable, "-m"], [str(out), "0.9", "none", "0", "1"])
    return {row["row"]: row["digest"] for row in rows}


@pytest.mark.parametrize("way", ["stored", "http", pytest.param("bucket", marks=needs_moto)])
def test_every_row_is_read_once_an_epoch_by_one_of_the_ranks(
    root: Path, verifier: Path, files: dict[int, str], tmp_path: Path, way: str
) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    given = [str(tmp_path / "prepared"), str(verifier), str(WORKERS[way]), str(EPOCHS)]
    if way == "stored":
        rows = read(tmp_path, [*torchrun, "-m"], [f"{root}/states", *given])
    elif way == "http":
        with serving(root, locations="off") as url:
            rows = read(tmp_path, [*torchrun, "-m"], [f"{url}#states", *given])
    else:
        with s3_server() as environment:
            bucket = new_bucket(environment)
            with pytest.MonkeyPatch.context() as patch:
                for name, value in environment.items():
                    patch.setenv(name, value)
                copied(root, f"s3://{bucket}/copy")
                rows = read(tmp_path, [*torchrun, "-m"], [f"s3://{bucket}/copy/states", *given])
    assert Counter(row["row"] for row in rows) == dict.fromkeys(range(len(LENGTHS)), EPOCHS)
    assert {row["rank"] for row in rows} == {"0", "1"}
    assert len({row["pid"] for row in rows}) > RANKS
    assert {row["row"]: row["digest"] for row in rows} == files


def copied(root: Path, url: str) -> None:
    """Copy every key of a folder into a bucket."""
    door, other = LocalDoor(root), open_door(url)
    for entry in door.entries("states"):
        other.create(entry.key, door.read(entry.key))


def read(folder: Path, python: list[str], words: list[str]) -> list[dict[str, Any]]:
    """Run the loaders, and return every row that they read."""
    path = os.pathsep.join([str(ENVIRONMENT.resolve()), str(Path(__file__).parents[2])])
    given = {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", OUT: str(folder / "rows")}
    ran = subprocess.run(
        [*python, "tests.oracle.ranked_loader", *words],
        env=os.environ | given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return [json.loads(line) for file in folder.glob("rows.*") for line in file.read_text().splitlines()]
