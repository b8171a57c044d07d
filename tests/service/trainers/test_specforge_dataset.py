"""SpecForge's samples live: those of the files that an export writes, by the names that are trained on."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from datagen.export.exporting import Asked, plan_export, run_export
from service.trainers import specforge_dataset
from service.trainers.errors import TrainerError
from service.trainers.specforge_dataset import SpecForgeDataset, open_specforge
from tests.builders import tiny_norm
from tests.datagen.adapters.exports.builders import make_dataset, open_dataset
from tests.service.serving import serving

FC = ("layer2", "layer4", "layer5")
MODES = pytest.mark.parametrize("mode", ["local", "http", "direct"])


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
def files(root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, torch.Tensor]]:
    """Export the dataset, and read its files in the order in which SpecForge counts them."""
    out = tmp_path_factory.mktemp("exported") / "specforge"
    run_export(plan_export(Asked(f"{root}/states", "specforge", out)), 1)
    paths = sorted(str(path) for path in out.rglob("*.ckpt"))
    return [torch.load(path, weights_only=True) for path in paths]


def opened(mode: str, root: Path, url: str, **given: Any) -> SpecForgeDataset:
    source = f"{root}/states" if mode == "local" else f"{url}#states"
    return open_specforge(source, direct=mode == "direct", **given)


def same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    return (
        ours.dtype == theirs.dtype
        and ours.shape == theirs.shape
        and torch.equal(ours.contiguous().view(torch.uint8), theirs.contiguous().view(torch.uint8))
    )


@MODES
@pytest.mark.parametrize("max_len", [2048, 64, 1])
def test_a_sample_is_what_training_makes_of_the_file(
    mode: str, max_len: int, root: Path, url: str, files: list[dict[str, torch.Tensor]]
) -> None:
    dataset = opened(mode, root, url, max_len=max_len)
    assert len(dataset) == len(files) == 10
    for row, file in enumerate(files):
        sample = dataset[row]
        assert set(sample) == {"attention_mask", "loss_mask", "target", "hidden_state", "input_ids"}
        # The names swap: what the file calls hidden_state is the target.
        assert same(sample["hidden_state"], file["aux_hidden_state"][:, :max_len])
        assert same(sample["target"], file["hidden_state"][:, :max_len])
        assert same(sample["input_ids"], file["input_ids"][None, :max_len])
        mask = file["loss_mask"][None, :max_len].clone()
        mask[0, -1] = 0
        assert same(sample["loss_mask"], mask)
        assert same(sample["attention_mask"], torch.ones_like(mask))


@pytest.mark.parametrize("mode", ["local", "http"])
def test_in_a_loaders_workers(mode: str, root: Path, url: str, files: list[dict[str, torch.Tensor]]) -> None:
    dataset = opened(mode, root, url)
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="fork")
    for sample, file in zip(loader, files, strict=True):
        assert same(sample["target"], file["hidden_state"])
    again = pickle.loads(pickle.dumps(dataset))
    assert same(again[3]["target"], files[3]["hidden_state"])
    assert again.card == dataset.card


def test_it_says_what_it_is_trained_on(root: Path, url: str) -> None:
    dataset = opened("http", root, url)
    wiring = dataset.card.wiring
    assert (wiring.title, wiring.fc) == ("specforge==0.2.0", FC)
    assert wiring.target is not None
    assert wiring.target.tensor == "final_normed"
    assert "derived" in {note.kind for note in dataset.notes}
    assert dataset.sample_id(0) in open_dataset(f"{root}/states").snapshot()
    with pytest.raises(IndexError, match="between 0 and 9"):
        dataset[10]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("layer2", "layer4", "layer5", "final"), "strata norm"),
        (("layer2", "layer4", "final_normed"), "expected layer5"),
    ],
)
def test_a_dataset_that_lacks_something_is_refused_at_the_opening(
    names: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    make_dataset(tmp_path, names, lengths=(5,))
    with pytest.raises(TrainerError, match=told):
        open_specforge(f"{tmp_path}/states")


def test_what_is_stored_normed_is_taken_as_it_is(tmp_path: Path) -> None:
    make_dataset(tmp_path, (*FC, "final_normed"), lengths=(5,))
    dataset = open_specforge(f"{tmp_path}/states")
    (sample_id,) = open_dataset(f"{tmp_path}/states").snapshot().sample_ids
    stored = open_dataset(f"{tmp_path}/states").snapshot().read(sample_id).tensors["final_normed"]
    assert dataset[0]["target"].view(torch.uint8).numpy().tobytes() == stored.tobytes()


def test_an_input_in_an_order_of_its_own_is_refused(root: Path) -> None:
    with pytest.raises(TrainerError):
        open_specforge(f"{root}/states", fc=("layer5", "layer4", "layer2"))
    with pytest.raises(TrainerError, match="layer77"):
        open_specforge(f"{root}/states", fc=("layer77",))


def test_memory_is_kept_where_that_is_asked_in_each_process(
    root: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []

    def keeping() -> SimpleNamespace:
        told.append("kept")
        return SimpleNamespace(bound=told.append)

    monkeypatch.setattr(specforge_dataset, "keep_freed_memory", keeping)
    opened("local", root, url)[0]
    assert told == []
    dataset = opened("local", root, url, keep_memory=True)
    for reader in (dataset, pickle.loads(pickle.dumps(dataset))):
        told.clear()
        rows = [reader[row] for row in range(2)]
        assert told == ["kept", *(row["hidden_state"].nbytes + row["target"].nbytes for row in rows)]
    told.clear()
    monkeypatch.setattr(specforge_dataset, "keep_freed_memory", lambda: told.append("refused"))
    dataset = opened("local", root, url, keep_memory=True)
    for row in range(2):
        dataset[row]
    assert told == ["refused"]
