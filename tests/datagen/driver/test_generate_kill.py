"""Kill -9 of a driver whose targets answer, then run again: every ask is answered exactly once."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from datagen.planning.preparation import prepare
from datagen.store.dataset import Dataset
from datagen.store.errors import NotFoundError
from datagen.store.local import LocalDoor
from datagen.store.verify import verify
from tests.datagen.driver.test_kill import LENGTHS, kill_all, until_parts
from tests.datagen.run_builders import flags, synthetic_config, synthetic_settings, write_prompts

CHANGES = {
    "generate.max_tokens": 100,
    "generate.temperature": 1.0,
    "generate.n": 2,
    "engine.synthetic.hidden_size": 2048,
    "parts.max_bytes": 1 << 22,
    "parts.commit_every_parts": 2,
    "workers.count": 2,
}


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "datagen.run", *flags({**synthetic_settings(folder), **CHANGES})]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def answered(folder: Path) -> dict[str, str]:
    """Return the sample of each ask in the newest version; no ask has two."""
    try:
        snapshot = Dataset.open(LocalDoor(folder / "data"), "small").snapshot()
    except NotFoundError:
        return {}
    pairs = [(snapshot.index.locate(name).prompt_id, name) for name in snapshot.sample_ids]
    assert len({ask for ask, _ in pairs}) == len({name for _, name in pairs}) == len(pairs)
    return dict(pairs)


@pytest.mark.slow
def test_a_driver_that_is_killed_asks_nothing_twice(tmp_path: Path) -> None:
    write_prompts(tmp_path / "prompts.jsonl", LENGTHS)
    config = synthetic_config(tmp_path, **{name.replace(".", "__"): value for name, value in CHANGES.items()})
    asks = {prompt.prompt_id for prompt in prepare(config, "run").prompts}
    chance = random.Random(7)
    run = start(tmp_path)
    until_parts(tmp_path, run, chance.randint(3, 6))
    time.sleep(chance.random() * 0.2)
    kill_all(run)
    before = answered(tmp_path)
    run = start(tmp_path)
    said = run.communicate(timeout=300)[0]
    assert run.returncode == 0, said
    after = answered(tmp_path)
    assert before.items() <= after.items()
    dataset = Dataset.open(LocalDoor(tmp_path / "data"), "small")
    # A prompt without an answer's place was never asked, and has no id.
    rows = [row for row in dataset.snapshot().quarantined() if row.prompt_id]
    assert {row.reason for row in rows} <= {"duplicate_answer"}
    refused = {row.prompt_id for row in rows}
    assert set(after) | refused == asks
    assert not set(after) & refused
    assert verify(dataset).errors == []
