"""Kill -9 of the driver and of workers at random moments, then run again: every sample exactly once."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from datagen.planning.preparation import prepare
from datagen.store.dataset import Dataset
from datagen.store.errors import NotFoundError
from datagen.store.local import LocalDoor
from datagen.store.verify import verify
from tests.datagen.run_builders import flags, synthetic_config, synthetic_settings, write_prompts

LENGTHS = [1 + 37 * n % 400 for n in range(160)]
KILLS = int(os.environ.get("STRATA_TEST_KILLS", "1"))
"""How often the driver is killed before it may finish; `make chaos` does it more often."""
CHANGES = {
    "engine.synthetic.hidden_size": 2048,
    "parts.max_bytes": 1 << 22,
    "parts.commit_every_parts": 2,
    "workers.count": 2,
}


def start(folder: Path) -> subprocess.Popen[str]:
    """Start a run in a process of its own, as a user would."""
    command = [sys.executable, "-m", "datagen.run", *flags({**synthetic_settings(folder), **CHANGES})]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def until_parts(folder: Path, run: subprocess.Popen[str], count: int) -> None:
    """Wait until `count` parts have begun."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and run.poll() is None:
        if sum(1 for _ in (folder / "data" / "small" / "parts").glob("*")) >= count:
            return
        time.sleep(0.01)
    pytest.fail(f"no {count} parts came: {run.communicate()[0]}")


def children(run: subprocess.Popen[str]) -> Iterator[psutil.Process]:
    """Yield every process below a run."""
    yield from psutil.Process(run.pid).children(recursive=True)


def kill_all(run: subprocess.Popen[str]) -> None:
    """Kill the driver, and the cluster that it started, at once: as a power cut would."""
    below = list(children(run))
    os.kill(run.pid, signal.SIGKILL)
    for process in below:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    run.communicate()


def committed(folder: Path) -> set[str]:
    """Return the samples of the newest version."""
    try:
        snapshot = Dataset.open(LocalDoor(folder / "data"), "small").snapshot()
    except NotFoundError:
        return set()
    ids = list(snapshot.sample_ids)
    assert len(ids) == len(set(ids))
    return set(ids)


def finish_and_check(folder: Path) -> None:
    run = start(folder)
    said = run.communicate(timeout=300)[0]
    assert run.returncode == 0, said
    check(folder)


def check(folder: Path) -> None:
    """Every prompt is one sample, and every byte is right."""
    config = synthetic_config(folder, **{name.replace(".", "__"): value for name, value in CHANGES.items()})
    assert committed(folder) == {prompt.sample_id for prompt in prepare(config, "run").prompts}
    for name in ("small", "small.audit"):
        assert verify(Dataset.open(LocalDoor(folder / "data"), name)).errors == []


@pytest.mark.slow
def test_a_driver_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    write_prompts(tmp_path / "prompts.jsonl", LENGTHS)
    chance = random.Random(7)
    kept: set[str] = set()
    for round_ in range(KILLS):
        run = start(tmp_path)
        have = sum(1 for _ in (tmp_path / "data" / "small" / "parts").glob("*"))
        until_parts(tmp_path, run, have + chance.randint(2, 6))
        time.sleep(chance.random() * 0.2)
        kill_all(run)
        now = committed(tmp_path)
        assert kept <= now, round_
        kept = now
    finish_and_check(tmp_path)


@pytest.mark.slow
def test_workers_killed_at_random_are_replaced_and_the_run_ends_whole(tmp_path: Path) -> None:
    write_prompts(tmp_path / "prompts.jsonl", LENGTHS)
    run = start(tmp_path)
    chance = random.Random(11)
    for parts in (2, 6):
        until_parts(tmp_path, run, parts)
        workers = [process for process in children(run) if "ray::Worker" in " ".join(process.cmdline())]
        if workers:
            chance.choice(workers).kill()
    said = run.communicate(timeout=300)[0]
    assert run.returncode == 0, said
    assert "lost" in said
    check(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_interrupted_it_commits_what_is_in_hand_and_says_how_to_go_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    write_prompts(tmp_path / "prompts.jsonl", LENGTHS * 4)
    run = start(tmp_path)
    until_parts(tmp_path, run, 2)
    if number == signal.SIGINT:
        os.killpg(run.pid, number)  # a terminal sends it to the whole group
    else:
        os.kill(run.pid, number)  # `ray job stop` and a node's shutdown send it to the driver
    said = run.communicate(timeout=120)[0]
    assert run.returncode == 1, said
    assert "interrupted" in said
    assert "to go on      strata run --output.root" in said
    assert committed(tmp_path)
    assert verify(Dataset.open(LocalDoor(tmp_path / "data"), "small")).errors == []
