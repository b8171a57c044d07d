"""A writer killed at any moment leaves whole parts and litter, never a part that only looks whole."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from datagen.store.keys import is_litter
from datagen.store.local import LocalDoor
from datagen.store.part_reader import PartReader
from datagen.store.shard import shard_problems
from tests.builders import random_sample, tiny_schema

WRITER = """
import sys
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from tests.builders import random_sample, tiny_schema

door, schema = LocalDoor(sys.argv[1]), tiny_schema()
samples = [random_sample(schema, length, length) for length in (3, 70, 130)]
while True:
    with PartWriter(door, "demo", schema, "run-1") as part:
        for sample in samples:
            part.add(sample)
        closed = part.close()
    sys.stdout.write(closed.record.part_id + "\\n")
    sys.stdout.flush()
"""


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_writer_leaves_only_whole_parts_and_litter(tmp_path: Path, seed: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = [process.stdout.readline().strip()]
        time.sleep(random.Random(seed).uniform(0.0, 0.2))
        process.kill()
        told += process.stdout.read().split()
    door, schema = LocalDoor(tmp_path), tiny_schema()
    entries = [entry.key for entry in door.entries("demo/parts")]
    records = [key for key in entries if key.endswith("/part.json")]
    whole = {key.split("/")[2] for key in records}
    assert set(told) <= whole
    assert all(not is_litter(key) for key in records)
    expected = {length: random_sample(schema, length, length) for length in (3, 70, 130)}
    for part_id in whole:
        reader = PartReader(door, "demo", part_id, schema)
        for tensor in reader.record.tensors:
            key = f"demo/parts/{part_id}/{tensor.path}"
            assert shard_problems(door, key, reader.record.n_tokens, tensor.row_bytes) == []
        for sample in reader.samples():
            for name, rows in expected[sample.n_tokens].tensors.items():
                back = reader.read_tensor(sample.row_start, sample.n_tokens, name)
                assert back.tobytes() == rows.tobytes()
