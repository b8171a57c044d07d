"""Whole runs into a bucket, by the command itself: its workers have nothing but its environment."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from datagen.driver.driver import run
from datagen.errors import ConfigError
from datagen.store.bucket import BucketDoor
from datagen.store.dataset import Dataset
from datagen.store.verify import verify
from tests.datagen.run_builders import flags, synthetic_config, synthetic_settings, write_prompts
from tests.datagen.store.bucket_server import needs_moto, new_bucket, s3_server

LENGTHS = [5, 64, 65, 130, 33, 12]

pytestmark = needs_moto


class Made(NamedTuple):
    """A run into a bucket, and how it is told again."""

    folder: Path
    root: str
    environment: dict[str, str]
    said: str


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("run")
    write_prompts(folder / "prompts.jsonl", LENGTHS)
    with s3_server() as environment, pytest.MonkeyPatch.context() as patch:
        # Plain HTTP follows from the endpoint.
        environment.pop("AWS_ALLOW_HTTP")
        for name, value in environment.items():
            patch.setenv(name, value)
        root = f"s3://{new_bucket(environment)}/states"
        words = flags({**synthetic_settings(folder), "output.root": root})
        command = [sys.executable, "-m", "datagen.run", *words]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert ran.returncode == 0, ran.stderr
        yield Made(folder, root, environment, ran.stdout)


def test_a_run_by_workers_in_other_processes_is_whole(made: Made) -> None:
    assert f"{made.root}/small@1: complete, {len(LENGTHS)} samples" in made.said
    door = BucketDoor(made.root)
    for name in ("small", "small.audit"):
        report = verify(Dataset.open(door, name))
        assert report.ok
        assert report.notes == []


def test_a_second_run_finds_nothing_and_starts_no_worker(made: Made) -> None:
    summary = run(synthetic_config(made.folder, output__root=made.root))
    assert (summary.version, summary.already_made, summary.n_samples) == (1, len(LENGTHS), 0)


def test_a_bucket_that_is_not_there_is_told_with_all_else_that_is_wrong(made: Made) -> None:
    config = synthetic_config(made.folder, output__root="s3://not-there", prompts__path="missing.jsonl")
    with pytest.raises(ConfigError) as caught:
        run(config)
    told = [problem.message for problem in caught.value.problems]
    assert len(told) == 2
    assert any("no such bucket" in message for message in told)
    assert any("missing.jsonl" in str(problem) for problem in caught.value.problems)
