"""The norm beside a schema: kept once, another one refused, damage told by the file's name."""

from pathlib import Path

import pytest

from datagen.store.dataset import Dataset
from datagen.store.errors import ConflictError, CorruptError
from datagen.store.local import LocalDoor
from schemas.target import WeightsDigest
from tests.builders import tiny_norm
from tests.datagen.adapters.exports.builders import make_dataset, open_dataset


def opened(root: Path) -> Dataset:
    return open_dataset(make_dataset(root, lengths=(5,)))


def test_it_is_kept_once_and_read_with_every_version(tmp_path: Path) -> None:
    dataset = opened(tmp_path)
    snapshot = dataset.snapshot()
    assert snapshot.final_norm() is None
    assert dataset.keep_final_norm(snapshot.schema, tiny_norm())
    assert not dataset.keep_final_norm(snapshot.schema, tiny_norm())
    assert snapshot.final_norm() == dataset.snapshot().final_norm() == tiny_norm()


def test_another_norm_is_refused(tmp_path: Path) -> None:
    dataset = opened(tmp_path)
    schema = dataset.snapshot().schema
    other = tiny_norm().model_copy(update={"weights": WeightsDigest(method="synthetic", sha256="f" * 64)})
    with pytest.raises(ConflictError, match="not the final norm of states's target"):
        dataset.keep_final_norm(schema, other)
    dataset.keep_final_norm(schema, tiny_norm())
    with pytest.raises(ConflictError, match="keeps another final norm"):
        dataset.keep_final_norm(schema, tiny_norm(seed=1))


def test_damage_is_told_by_name(tmp_path: Path) -> None:
    dataset = opened(tmp_path)
    schema = dataset.snapshot().schema
    dataset.keep_final_norm(schema, tiny_norm())
    key = dataset.layout.final_norm(schema.fingerprint)
    path = LocalDoor(tmp_path).local_path(key)
    assert path is not None
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CorruptError, match=key):
        dataset.snapshot().final_norm()
