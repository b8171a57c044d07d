"""The client's batches in a consumer's format, against what its own code makes of its own files."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from service.client.stream import ConsumerBatch
from tests.oracle.borrow import borrow
from tests.oracle.stream import Owner
from tests.oracle.wheels import source
from tests.service.client.memory_source import MemorySource, source_of
from tests.service.client.stream.asking import FC, SPECFORGE, WIRING, stream_of

MAX_LEN = 48
SAMPLES = source_of([5, 3, 17, 2, 30, 1, 7, 48, 4, 21])


def batches(wiring: Any, format: str) -> list[ConsumerBatch]:
    return list(stream_of(SAMPLES, wiring, tokens_per_batch=MAX_LEN, format=format))


def stored(samples: MemorySource, sample_id: str, name: str) -> torch.Tensor:
    sample = samples.samples[sample_id]
    if name in sample.tokens:
        return torch.from_numpy(sample.tokens[name]).long()
    return torch.from_numpy(sample.tensors[name].view("u2")).view(torch.bfloat16)


def same(ours: Any, theirs: Any) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        if isinstance(value, torch.Tensor):
            assert ours[name].dtype == value.dtype, name
            assert torch.equal(ours[name], value), name
        else:
            assert ours[name] == value, name


class Speculators:
    """speculators 0.9.0: its dataset over one `hs_{i}.safetensors`, its shift and its collate."""

    def __init__(self) -> None:
        package = source("speculators", "0.9.0")
        self.data = package / "train" / "data.py"
        self.given = {"SampleUnavailable": type("SampleUnavailable", (), {})}
        self.shift = borrow(package / "models" / "eagle3" / "data.py", "shift_batch")

    def sample(self, sample_id: str) -> dict[str, torch.Tensor]:
        states = [stored(SAMPLES, sample_id, name) for name in (*FC, "final")]
        file = {
            "hidden_states": torch.stack(states, dim=1),
            "token_ids": stored(SAMPLES, sample_id, "input_ids"),
        }
        row = {"input_ids": file["token_ids"], "loss_mask": stored(SAMPLES, sample_id, "loss_mask")}
        read = borrow(self.data, "ArrowDataset._get_raw_data", self.given)
        stored_rows = Owner(
            data=[row],
            transfer=SimpleNamespace(get_cached=lambda _: file),
            _map_to_file_idx=lambda index: index,
        )
        dataset = Owner(_get_raw_data=lambda index: read(stored_rows, index))
        return borrow(self.data, "BaseDataset.__getitem__", self.given)(dataset, 0)  # type: ignore[no-any-return]

    def collate(self, samples: list[dict[str, torch.Tensor]]) -> dict[str, Any]:
        collate = borrow(self.data, "CollateFn", self.given)
        return collate(MAX_LEN, 8, len(FC), torch.bfloat16, self.shift)(samples)  # type: ignore[no-any-return]


class SpecForge:
    """SpecForge 0.2.0: what it makes of one `.ckpt` record, and its collate."""

    def __init__(self) -> None:
        self.package = source("specforge", "0.2.0")

    def sample(self, sample_id: str) -> dict[str, torch.Tensor]:
        record = {
            "input_ids": stored(SAMPLES, sample_id, "input_ids"),
            "loss_mask": stored(SAMPLES, sample_id, "loss_mask"),
            "hidden_state": stored(SAMPLES, sample_id, "final_normed")[None],
            "aux_hidden_state": torch.cat([stored(SAMPLES, sample_id, name) for name in FC], -1)[None],
        }
        path = self.package / "algorithms" / "eagle3" / "data.py"
        return borrow(path, "normalize_offline_sample", {"torch": torch})(record, MAX_LEN)  # type: ignore[no-any-return]

    def collate(self, samples: list[dict[str, torch.Tensor]]) -> dict[str, Any]:
        given = {"dist": SimpleNamespace(is_available=lambda: False)}
        return borrow(self.package / "data" / "utils.py", "DataCollatorWithPadding", given)()(samples)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("consumer", "wiring"), [(Speculators, WIRING), (SpecForge, SPECFORGE)], ids=["speculators", "specforge"]
)
def test_samples_and_batches_are_those_of_the_consumers_own_code(consumer: Any, wiring: Any) -> None:
    theirs = consumer()
    collated, apart = batches(wiring, "consumer"), batches(wiring, "consumer_samples")
    assert len(collated) > 2
    for batch, samples in zip(collated, apart, strict=True):
        expected = [theirs.sample(sample_id) for sample_id in batch.sample_ids]
        for ours, sample in zip(samples.inputs, expected, strict=True):
            same(ours, sample)
        same(batch.inputs, theirs.collate(expected))
        same(batch.inputs, theirs.collate(samples.inputs))
