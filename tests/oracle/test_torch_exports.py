"""speculators-v1, SpecForge's, ModelOpt's and EAGLE's exports, read by their own code: what a trainer sees.

Every batch is compared bit for bit with the stored tensors, padded and shifted as the formats say.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from datagen.adapters.exports.draft_vocabulary import DraftVocabulary, choose_tokens
from datagen.export.exporting import Asked, plan_export, run_export
from datagen.store.snapshot import Sample
from tests.builders import tiny_target
from tests.datagen.adapters.exports.builders import make_dataset, open_dataset
from tests.oracle import modelopt_code
from tests.oracle.borrow import borrow
from tests.oracle.stream import Owner
from tests.oracle.wheels import is_cached, source

NAMES = ("embed", "layer2", "layer3", "layer4", "layer5", "layer6", "final", "final_normed")
MAX_LEN = 100
"""Less than the longest sample: trainers cut there."""
DRAFT_TOKENS = 50
V1, SPECFORGE, MODELOPT = ("speculators", "0.4.0"), ("specforge", "0.2.0"), ("modelopt", "0.47.0")
EAGLE = ("eagle", "1.2.1")


def needs(*release: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not is_cached(*release), reason="run make oracle")


def exported(tmp_path: Path, name: str, model_type: str = "llama") -> tuple[Path, list[Sample]]:
    """Export a dataset, and return where it lies and the samples in the order of rows."""
    target = tiny_target(n_layers=8).model_copy(update={"model_type": model_type})
    reference = make_dataset(tmp_path, names=NAMES, target=target)
    size = None if name == "eagle" else DRAFT_TOKENS
    asked = Asked(reference, name, tmp_path / "out", draft_vocab_size=size)
    folder = run_export(plan_export(asked), workers=2).path
    snapshot = open_dataset(reference).snapshot()
    rows = [json.loads(line) for line in (folder / "strata_rows.jsonl").read_text().splitlines()]
    return folder, [snapshot.read(row["sample_id"]) for row in rows]


def tokens(sample: Sample, name: str) -> torch.Tensor:
    return torch.from_numpy(sample.tokens[name].astype(np.int64))


def states(sample: Sample, *names: str) -> torch.Tensor:
    """Return tensors side by side, `[T, k*H]`."""
    rows = [torch.from_numpy(sample.tensors[name].view(np.int16)).view(torch.bfloat16) for name in names]
    return torch.cat(rows, dim=1)


def padded(rows: torch.Tensor, length: int) -> torch.Tensor:
    """Return rows cut at `length`, or filled with zeros up to it."""
    kept = rows[:length]
    return torch.cat([kept, kept.new_zeros(length - len(kept), *kept.shape[1:])])


def same(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Say whether dtype, shape and every bit are the same, -0.0 apart from 0.0."""
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return False
    wide = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}
    as_bits = wide.get(got.dtype, got.dtype)
    return torch.equal(got.contiguous().view(as_bits), expected.contiguous().view(as_bits))


@needs(*V1)
def test_speculators_04_packs_the_stored_rows_shifted(tmp_path: Path) -> None:
    folder, stored = exported(tmp_path, "speculators-v1")
    data = source(*V1) / "train" / "data.py"
    dataset = borrow(data, "Eagle3SampleFileDataset")(
        MAX_LEN, file_list=[str(folder / f"data_{row}.pt") for row in range(len(stored))],
        hidden_states_dtype=torch.bfloat16,
    )  # fmt: skip
    assert set(map(str, borrow(data, "list_files")(folder))) == set(dataset.data)
    assert dataset.approx_lengths == [sample.n_tokens for sample in stored]
    items = [dataset[row] for row in range(len(stored))]
    expected = {
        "input_ids": [tokens(sample, "input_ids")[1:] for sample in stored],
        "loss_mask": [tokens(sample, "loss_mask")[1:] for sample in stored],
        "hidden_states": [states(sample, "layer3", "layer5", "layer6")[:-1] for sample in stored],
        "verifier_last_hidden_states": [states(sample, "final")[1:] for sample in stored],
        "position_ids": [torch.arange(1, sample.n_tokens) for sample in stored],
    }
    for name, rows in expected.items():
        assert all(same(item[name], row) for item, row in zip(items, rows, strict=True)), name
    batch = borrow(data, "create_collate_fn")(MAX_LEN)(items)
    for name, rows in expected.items():
        assert same(batch[name], padded(torch.cat(rows), MAX_LEN)[None]), name


def specforge_batch(stored: Sequence[Sample]) -> dict[str, torch.Tensor]:
    """Return what its trainer sees: stored `aux` as `hidden_state`, and the last token never trained on."""
    longest = min(max(sample.n_tokens for sample in stored), MAX_LEN)
    masks = []
    for sample in stored:
        mask = tokens(sample, "loss_mask")[:MAX_LEN].clone()
        mask[-1] = 0
        masks.append(mask)
    columns: dict[str, list[torch.Tensor]] = {
        "input_ids": [tokens(sample, "input_ids")[:MAX_LEN] for sample in stored],
        "attention_mask": [torch.ones(min(sample.n_tokens, MAX_LEN), dtype=torch.long) for sample in stored],
        "loss_mask": masks,
        "hidden_state": [states(sample, "layer2", "layer4", "layer5")[:MAX_LEN] for sample in stored],
        "target": [states(sample, "final_normed")[:MAX_LEN] for sample in stored],
    }
    return {name: torch.stack([padded(rows, longest) for rows in column]) for name, column in columns.items()}


Load = Callable[[Path], list[dict[str, torch.Tensor]]]


def by_the_dataset(folder: Path) -> list[dict[str, torch.Tensor]]:
    """Read by its dataset, over its own list of files."""
    package = source(*SPECFORGE)
    files = borrow(package / "runtime" / "data_plane" / "offline_reader.py", "list_feature_files")(
        str(folder)
    )
    dataset = borrow(package / "data" / "preprocessing.py", "OfflineEagle3Dataset")(files, max_len=MAX_LEN)
    # Files are mapped copy on write, and the mask's last place is written.
    return [dataset[row] for row in range(len(dataset))]


def by_the_reader(folder: Path) -> list[dict[str, torch.Tensor]]:
    """Read by its runtime: the manifest reader, which checks keys, then the store's loader and normalizer."""
    package = source(*SPECFORGE)
    plane = package / "runtime" / "data_plane"
    load = borrow(plane / "feature_store.py", "load_feature_file")
    given = {
        "SampleRef": SimpleNamespace,
        "load_feature_file": load,
        "spec_from_tensor": lambda _name, tensor: tensor.shape,
        "SCHEMA_VERSION": 1,
    }
    reader = borrow(plane / "offline_reader.py", "OfflineManifestReader", given)
    refs = reader(str(folder), max_len=MAX_LEN, validate_files=True).read()
    normalize = borrow(
        package / "algorithms" / "eagle3" / "data.py", "normalize_offline_sample", {"torch": torch}
    )
    return [normalize(load(ref.feature_store_uri.removeprefix("file://")), MAX_LEN) for ref in refs]


@needs(*SPECFORGE)
@pytest.mark.parametrize("load", [by_the_dataset, by_the_reader])
def test_specforge_collates_the_stored_rows(load: Load, tmp_path: Path) -> None:
    folder, stored = exported(tmp_path, "specforge")
    collate = borrow(source(*SPECFORGE) / "data" / "utils.py", "DataCollatorWithPadding")()
    batch = collate(load(folder))
    expected = specforge_batch(stored)
    for name, values in expected.items():
        assert same(batch[name], values), name
    padding = borrow(source(*SPECFORGE) / "utils.py", "padding")
    preprocess = borrow(
        source(*SPECFORGE) / "modeling" / "target" / "target_head.py",
        "TargetHead.preprocess",
        {"padding": padding},
    )
    ids, target, mask = preprocess(None, batch["input_ids"], batch["target"], batch["loss_mask"])
    assert same(ids[:, :-1], expected["input_ids"][:, 1:])
    assert same(target[:, :-1], expected["target"][:, 1:])
    assert same(mask[..., 0], expected["loss_mask"])


@needs(*MODELOPT)
@pytest.mark.parametrize(("model_type", "target"), [("llama", "final"), ("gpt_oss", "final_normed")])
def test_modelopt_collates_the_stored_rows_and_is_told_whether_to_norm(
    model_type: str, target: str, tmp_path: Path
) -> None:
    folder, stored = exported(tmp_path, "modelopt", model_type)
    rows = [json.loads(line) for line in (folder / "strata_rows.jsonl").read_text().splitlines()]
    files = [str(folder / row["file"]) for row in rows]
    assert {str(path) for path in (folder / "hidden_states").glob("*.pt")} == set(files)
    code = source(*MODELOPT) / "torch" / "speculative"
    reader = borrow(
        code / "eagle" / "utils.py", "OfflineSupervisedDataset.__getitem__", modelopt_code.NO_LABEL
    )
    dataset = Owner(dumped_files=files, answer_only_loss=True, tokenizer=None)
    collator = borrow(code / "eagle" / "utils.py", "EagleOfflineDataCollator")(MAX_LEN)
    batch = collator([reader(dataset, row) for row in range(len(files))])
    expected = {
        "input_ids": [tokens(sample, "input_ids") for sample in stored],
        "loss_mask": [tokens(sample, "loss_mask") for sample in stored],
        "aux_hidden_states": [states(sample, "layer2", "layer4", "layer5") for sample in stored],
        "base_model_hidden_states": [states(sample, target) for sample in stored],
    }
    outputs = batch["base_model_outputs"]
    for name, column in expected.items():
        got = batch[name] if name in batch else outputs[name]
        assert same(got, torch.stack([padded(values, MAX_LEN) for values in column])), name
    assert outputs["base_hidden_prenorm"] is (target == "final")
    assert modelopt_code.norms(MODELOPT[1], outputs) is (target == "final")


@needs(*MODELOPT)
def test_modelopt_norms_just_the_models_that_the_export_leaves_to_it() -> None:
    """A type that it does not know ends its training, one that it knows is spared a rounding."""
    from datagen.adapters.exports.modelopt import NORMED_BY_READER

    path = source(*MODELOPT) / "torch" / "speculative" / "plugins" / "modeling_final_norm.py"
    known = borrow(path, "_select_final_norm_type")
    assert all(known(model_type) is not None for model_type in NORMED_BY_READER)
    assert known("gpt_oss") is None
    assert "gpt_oss" not in NORMED_BY_READER


@needs(*MODELOPT)
def test_modelopt_loads_the_vocabulary_that_was_written(tmp_path: Path) -> None:
    folder, _ = exported(tmp_path, "modelopt")
    path = source(*MODELOPT) / "torch" / "speculative" / "plugins" / "hf_eagle.py"
    load = borrow(path, "HFEagleModel.load_draft_vocab_cache", {"print_rank_0": lambda _text: None})
    model = SimpleNamespace(
        eagle_config=SimpleNamespace(draft_vocab_size=DRAFT_TOKENS, vocab_size=1000),
        eagle_module=SimpleNamespace(d2t=torch.zeros(DRAFT_TOKENS, dtype=torch.int64)),
    )
    load(model, str(folder / "d2t.pt"))
    mapped = torch.arange(DRAFT_TOKENS) + model.eagle_module.d2t
    assert mapped.tolist() == sorted(set(mapped.tolist()))


@needs(*EAGLE)
def test_eagle_collates_the_last_state_twice_one_token_apart(tmp_path: Path) -> None:
    folder, stored = exported(tmp_path, "eagle")
    rows = [json.loads(line) for line in (folder / "strata_rows.jsonl").read_text().splitlines()]
    files = [str(folder / row["file"]) for row in rows]
    main = source(*EAGLE) / "train" / "main.py"
    # A script: what is given here is what would otherwise run its settings.
    listed = borrow(main, "list_files", {"datapath": None})
    assert set(listed(str(folder / "ge_data"))) == set(files)
    given = {"train_config": {"max_len": MAX_LEN}}
    owner = Owner(data=files, transform=None)
    read = borrow(main, "CustomDataset.__getitem__", given)
    batch = borrow(main, "DataCollatorWithPadding")()([read(owner, row) for row in range(len(files))])

    def column(values: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.stack([padded(row[:MAX_LEN], MAX_LEN) for row in values])

    # Its own padding is float32, and torch makes that of what it is put behind.
    states_of = [states(sample, "final_normed").half().float() for sample in stored]
    assert same(batch["hidden_states"], column(states_of))
    assert same(batch["target"], column([row[1:MAX_LEN] for row in states_of]))
    ids = [tokens(sample, "input_ids")[1:MAX_LEN] for sample in stored]
    assert same(batch["input_ids"], column(ids))
    masks = [tokens(sample, "loss_mask")[:MAX_LEN].clone() for sample in stored]
    for mask in masks:
        mask[-1] = 0
    assert same(batch["loss_mask"], column(masks))


counts_of_tokens = st.lists(st.integers(0, 3), min_size=1, max_size=60)


def maps(vocabulary: DraftVocabulary) -> tuple[list[int], list[bool]]:
    return vocabulary.d2t.tolist(), vocabulary.t2d.tolist()


@needs("speculators", "0.9.0")
@settings(deadline=None, max_examples=100)
@given(counts=counts_of_tokens, data=st.data())
def test_a_vocabulary_is_chosen_as_speculators_does(counts: list[int], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(counts)))
    build = borrow(
        source("speculators", "0.9.0") / "train" / "vocab_mapping.py",
        "build_vocab_mappings_from_distribution",
    )
    met = {token: count for token, count in enumerate(counts) if count}
    d2t, t2d = build(met, size, len(counts))
    assert maps(choose_tokens(np.array(counts), size)) == (d2t.tolist(), t2d.tolist())


@needs(*SPECFORGE)
@settings(deadline=None, max_examples=100)
@given(counts=counts_of_tokens, data=st.data())
def test_a_vocabulary_is_chosen_as_specforge_does_where_tokens_are_met_in_order(
    counts: list[int], data: st.DataObject
) -> None:
    # What fills up a short list is, there, in the order of a set.
    assume(any(counts))
    size = data.draw(st.integers(1, sum(map(bool, counts))))
    path = source(*SPECFORGE) / "data" / "preprocessing.py"
    build = borrow(path, "process_token_dict_to_mappings", {"print": lambda *_: None})
    met = Counter({token: count for token, count in enumerate(counts) if count})
    d2t, t2d = build(met, size, len(counts))
    assert maps(choose_tokens(np.array(counts), size)) == (d2t.tolist(), t2d.tolist())


@needs(*SPECFORGE)
def test_specforge_loads_the_vocabulary_that_was_written(tmp_path: Path) -> None:
    folder, _ = exported(tmp_path, "specforge")
    load = borrow(
        source(*SPECFORGE) / "modeling" / "draft" / "base.py", "Eagle3DraftModel.load_vocab_mapping"
    )
    model = SimpleNamespace(
        t2d=torch.zeros(1000, dtype=torch.bool), d2t=torch.zeros(DRAFT_TOKENS, dtype=torch.int64)
    )
    load(model, str(folder / "vocab_mapping" / "vocab_mapping.pt"))
    assert int(model.t2d.sum()) == DRAFT_TOKENS
    assert (torch.arange(DRAFT_TOKENS) + model.d2t).tolist() == torch.nonzero(model.t2d).flatten().tolist()
