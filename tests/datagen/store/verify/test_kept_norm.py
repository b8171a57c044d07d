"""Verify: the norm that is kept beside a schema is checked like all else."""

from pathlib import Path

from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.store.verify import verify
from tests.builders import tiny_norm, tiny_schema
from tests.datagen.store.real_parts import samples_of, write_part


def test_a_kept_norm_is_whole_and_its_targets(tmp_path: Path) -> None:
    schema = tiny_schema()
    dataset = Dataset.create(LocalDoor(tmp_path), "demo", schema, exist_ok=False)
    dataset.commit([write_part(dataset, schema, samples_of(schema, [3]))], [], run_id="run")
    assert dataset.keep_final_norm(schema, tiny_norm())
    assert verify(dataset).problems == []
    (kept,) = tmp_path.glob("demo/final_norms/*.json")
    whole = kept.read_bytes()
    kept.write_bytes(whole.replace(b'"epsilon":1e-05', b'"epsilon":-1.0'))
    assert {problem.where for problem in verify(dataset).problems} == {f"demo/final_norms/{kept.name}"}
    kept.write_bytes(whole)
    kept.rename(kept.with_name(f"{'0' * 64}.json"))
    assert not verify(dataset).ok
