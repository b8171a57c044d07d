"""SpecForge's samples live and in a stream, against what its own reader and collator make of an export.

The dataset stores `final` and keeps its target's norm: the files' target, and the live one, are made of it.
"""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from datagen.export.exporting import Asked, plan_export, run_export
from service.client.asked import Wiring
from service.client.client import Client
from service.trainers.specforge_dataset import open_specforge
from tests.builders import tiny_norm
from tests.datagen.adapters.exports.builders import make_dataset, open_dataset
from tests.oracle import specforge_code
from tests.oracle.borrow import borrow
from tests.oracle.wheels import is_cached, source
from tests.service.serving import serving

RELEASE = "0.2.0"
MAX_LEN = 80
FC = ("layer2", "layer4", "layer5")
MODES = pytest.mark.parametrize("mode", ["local", "http", "direct"])
Samples = list[dict[str, torch.Tensor]]
pytestmark = pytest.mark.skipif(not is_cached("specforge", RELEASE), reason="run make oracle")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    dataset = open_dataset(make_dataset(root))
    dataset.keep_final_norm(dataset.snapshot().schema, tiny_norm())
    return root


@pytest.fixture(scope="module")
def url(root: Path) -> Iterator[str]:
    with serving(root) as url:
        yield url


@pytest.fixture(scope="module")
def theirs(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """The samples that its own reader makes of exported files, in its own order of them."""
    out = tmp_path_factory.mktemp("exported") / "files"
    run_export(plan_export(Asked(f"{root}/states", "specforge", out)), 1)
    reader = source("specforge", RELEASE) / "runtime" / "data_plane" / "offline_reader.py"
    paths = borrow(reader, "list_feature_files")(str(out))
    return [specforge_code.read(RELEASE, torch.load(path, weights_only=False), MAX_LEN) for path in paths]


def collate(samples: Samples) -> dict[str, Any]:
    given = {"dist": SimpleNamespace(is_available=lambda: False)}
    path = source("specforge", RELEASE) / "data" / "utils.py"
    return borrow(path, "DataCollatorWithPadding", given)()(samples)  # type: ignore[no-any-return]


def same(ours: dict[str, Any], expected: dict[str, Any]) -> None:
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        if value is None:
            assert ours[name] is None
            continue
        assert (ours[name].dtype, ours[name].shape) == (value.dtype, value.shape), name
        bits = [each.contiguous().view(torch.uint8) for each in (ours[name], value)]
        assert torch.equal(*bits), name


@MODES
def test_samples_and_batches_are_those_of_its_own_reader(
    mode: str, root: Path, url: str, theirs: Samples
) -> None:
    place = f"{root}/states" if mode == "local" else f"{url}#states"
    ours = open_specforge(place, max_len=MAX_LEN, direct=mode == "direct")
    assert len(ours) == len(theirs)
    for row, expected in enumerate(theirs):
        same(ours[row], expected)
    for rows in (range(3), range(3, 10), range(9, -1, -1)):
        same(collate([ours[row] for row in rows]), collate([theirs[row] for row in rows]))


@pytest.mark.parametrize("direct", [False, True], ids=["http", "direct"])
def test_a_streams_batches_are_too(root: Path, url: str, theirs: Samples, direct: bool) -> None:
    rows = open_specforge(f"{root}/states")
    row_of = {rows.sample_id(row): row for row in range(len(rows))}
    wiring = Wiring("specforge", FC, "final_normed", version=RELEASE)
    options: dict[str, Any] = {"samples_per_batch": 3, "tokens_per_batch": MAX_LEN, "too_long": "drop"}
    n_seen = 0
    with Client(url, direct=direct) as client:
        for batch in client.stream("states", wiring=wiring, format="consumer", epochs=1, seed=0, **options):
            expected = collate([theirs[row_of[sample_id]] for sample_id in batch.sample_ids])
            same(batch.inputs, {name: value for name, value in expected.items() if name in batch.inputs})
            n_seen += len(batch.sample_ids)
    assert n_seen == sum(1 for sample in theirs if sample["input_ids"].shape[1] < MAX_LEN)
