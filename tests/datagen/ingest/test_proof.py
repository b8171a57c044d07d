"""The labels are held against the target before a byte is written, and refused with what each slot is."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from datagen.errors import ConfigError, IngestError
from datagen.ingest.asked import Asked
from datagen.ingest.plan import plan_ingest, proving_settings
from datagen.replay.identify_sources import ModelSource
from schemas.problem import Problem
from schemas.schema import DType
from tests.datagen.engines.tiny_models import VOCAB
from tests.datagen.ingest.ingest_builders import back, ingest
from tests.datagen.replay.foreign_builders import as_torch

NAMES = ("embed", "layer1", "layer2", "final")
LENGTHS = (40, 31, 52, 18, 24, 33, 47, 20, 29, 36)
Rows = NDArray[np.generic]


def states_of(source: ModelSource, ids: Sequence[int]) -> dict[str, Rows]:
    states = source.states(np.asarray(ids, np.int64))
    assert not isinstance(states, Problem)
    return dict(states)


def token_ids(length: int, seed: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(1, VOCAB, length)]


def write(folder: Path, source: ModelSource, names: Sequence[str] = NAMES) -> Path:
    """Write files of speculators v1 with the target's own states."""
    folder.mkdir()
    for number, length in enumerate(LENGTHS):
        ids = token_ids(length, number)
        states = states_of(source, ids)
        content = {
            "input_ids": torch.tensor(ids),
            "hidden_states": [as_torch(states[name]) for name in names],
            "loss_mask": torch.ones(length, dtype=torch.int64),
        }
        torch.save(content, folder / f"data_{number}.pt")
    return folder


@pytest.fixture(scope="module")
def written(source: ModelSource, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("written") / "v1", source)


def asked(folder: Path, root: Path, labels: tuple[str, ...] | None = NAMES, **more: object) -> Asked:
    return Asked("speculators-v1", (folder,), f"{root}/back", labels, **more)  # type: ignore[arg-type]


def refusal(given: Asked, source: ModelSource) -> str:
    """Return what is told; nothing is written."""
    with pytest.raises(IngestError) as error:
        plan_ingest(given, 2, source)
    assert error.value.exit_code == 1
    assert not Path(given.dataset).exists()
    return str(error.value)


def test_labels_that_hold_are_proven_and_recorded(written: Path, source: ModelSource, tmp_path: Path) -> None:
    plan, done = ingest(asked(written, tmp_path), source=source)
    assert plan.proof is not None
    assert plan.proof.names == NAMES
    assert len(plan.proof.files) == 8
    assert all(slot.n_files == 8 and slot.p99 == 0.0 for slot in plan.proof.slots)
    snapshot = back(tmp_path)
    assert (len(snapshot), done.outcome) == (len(LENGTHS), "complete")
    for number, length in enumerate(LENGTHS):
        ids = token_ids(length, number)
        states = states_of(source, ids)
        sample = next(
            sample
            for sample in map(snapshot.read, snapshot.sample_ids)
            if sample.tokens["input_ids"].tolist() == ids
        )
        assert all(np.array_equal(sample.tensors[name], states[name]) for name in NAMES)
    assert plan.held.dataset is None
    (start,) = plan_ingest(asked(written, tmp_path), 2, source).held.dataset.run_starts()  # type: ignore[union-attr]
    assert (start.provenance.engine, start.provenance.engine_version) == ("ingest", "proven")
    said = start.config["ingest"]
    assert isinstance(said, dict)
    assert said["labels"] == {f"hidden_states[{slot}]": name for slot, name in enumerate(NAMES)}
    assert [slot["is"] for slot in said["proof"]["slots"]] == [[name] for name in NAMES]


def test_a_normed_last_state_is_not_final(source: ModelSource, tmp_path: Path) -> None:
    folder = write(tmp_path / "normed", source, (*NAMES[:3], "final_normed"))
    told = refusal(asked(folder, tmp_path), source)
    assert "hidden_states[3]: expected final as --labels says, got final_normed" in told
    assert "write --labels embed,layer1,layer2,final_normed" in told


@pytest.mark.parametrize(
    "labels", [("layer1", "embed", "layer2", "final"), ("embed", "layer1", "layer2", "final_normed")]
)
def test_labels_in_another_order_are_refused_with_the_right_ones(
    labels: tuple[str, ...], written: Path, source: ModelSource, tmp_path: Path
) -> None:
    assert "write --labels embed,layer1,layer2,final" in refusal(asked(written, tmp_path, labels), source)


def test_without_labels_it_says_what_to_write(written: Path, source: ModelSource, tmp_path: Path) -> None:
    told = refusal(asked(written, tmp_path, None), source)
    assert "held against the target they are --labels embed,layer1,layer2,final" in told
    told = refusal(asked(written, tmp_path, None, proven=False), source)
    assert "expected a tensor's name for each of 4 slots, got none" in told


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (NAMES[1:], "expected a label for each of 4 slots, got 3 as --labels says"),
        (("embed", "layer1", "layer3", "final"), "expected a layer between 1 and 2"),
        (("embed", "layer1", "layer1", "final"), "layer1: expected once, got 2 times"),
    ],
    ids=["too few", "no such layer", "twice"],
)
def test_labels_that_cannot_be_are_refused_before_the_proof(
    labels: tuple[str, ...], told: str, written: Path, source: ModelSource, tmp_path: Path
) -> None:
    assert told in refusal(asked(written, tmp_path, labels), source)


def test_rows_that_are_shifted_are_refused(written: Path, source: ModelSource, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written, tmp_path / "shifted"))
    for file in folder.iterdir():
        content = torch.load(file, weights_only=True)
        content["hidden_states"][2] = content["hidden_states"][2].roll(1, 0)
        torch.save(content, file)
    told = refusal(asked(folder, tmp_path), source)
    assert "expected the state of each row's own token, got that of the token before" in told


def test_another_models_states_are_refused(source: ModelSource, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number, length in enumerate(LENGTHS):
        content = {
            "input_ids": torch.tensor(token_ids(length, number)),
            "hidden_states": [torch.from_numpy(rng.standard_normal((length, 48), np.float32)) for _ in NAMES],
            "loss_mask": torch.ones(length, dtype=torch.int64),
        }
        torch.save(content, folder / f"data_{number}.pt")
    told = refusal(asked(folder, tmp_path), source)
    for slot, name in enumerate(NAMES):
        assert f"hidden_states[{slot}]: expected {name} as --labels says, got nothing of this target" in told


@pytest.mark.parametrize(
    ("held", "device", "there", "computed"),
    [
        ("float16", "auto", False, "float32"),
        ("float16", "cpu", True, "float32"),
        ("float16", "auto", True, "float16"),
        ("bfloat16", "cpu", False, "bfloat16"),
    ],
)
def test_float16_is_computed_in_float32_where_no_device_has_it(
    held: DType, device: str, there: bool, computed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    given = Asked("eagle", (), "d", target="m", device=device)
    assert proving_settings(given, held).dtype == computed


def test_rows_of_float16_are_proven(source: ModelSource, tiny_target: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "v1", source)
    for file in folder.iterdir():
        content = torch.load(file, weights_only=True)
        content["hidden_states"] = [slot.half() for slot in content["hidden_states"]]
        torch.save(content, file)
    given = asked(folder, tmp_path, target=str(tiny_target), device="cpu")
    plan = plan_ingest(given, 2)
    assert plan.proof is not None
    assert plan.proof.names == NAMES
    assert " in float32, by " in plan.proof.source
    assert plan.schema.tensors[0].dtype == "float16"


def test_unproven_is_said_from_then_on_and_does_not_mix(
    written: Path, tiny_target: Path, source: ModelSource, tmp_path: Path
) -> None:
    given = asked(written, tmp_path, proven=False, target=str(tiny_target))
    plan, done = ingest(given)
    assert (plan.proof, done.n_samples) == (None, len(LENGTHS))
    assert done.final_norm.startswith("kept: ")
    assert back(tmp_path).final_norm() is not None
    with pytest.raises(Exception, match="was made otherwise") as error:
        plan_ingest(asked(written, tmp_path), 2, source)
    assert "expected 'unproven' as in the dataset, got 'proven'" in str(error.value)


def test_without_a_target_nothing_is_known(written: Path, tmp_path: Path) -> None:
    for proven in (True, False):
        with pytest.raises(ConfigError, match="give --target MODEL"):
            plan_ingest(asked(written, tmp_path, proven=proven), 2)


@pytest.mark.parametrize(
    ("width", "told"),
    [(32, "expected the target's width 32, got 48"), (24, "expected a label for each of 8 slots, got 4")],
)
def test_a_model_of_another_width_is_told(
    width: int, told: str, written: Path, source: ModelSource, tmp_path: Path
) -> None:
    narrow: Any = SimpleNamespace(target=source.target.model_copy(update={"hidden_size": width}))
    assert told in refusal(asked(written, tmp_path), narrow)


def changed(written: Path, to: Path, name: str, change: Callable[[list[torch.Tensor]], object]) -> Path:
    """Return a copy of the files, the states of one changed."""
    folder = Path(shutil.copytree(written, to))
    content = torch.load(folder / name, weights_only=True)
    change(content["hidden_states"])
    torch.save(content, folder / name)
    return folder


def test_a_file_of_another_order_among_proven_ones_is_left_out_where_norms_tell(
    written: Path, source: ModelSource, tmp_path: Path
) -> None:
    folder = changed(written, tmp_path / "mixed", "data_2.pt", list.reverse)
    plan, done = ingest(asked(folder, tmp_path, prove=2), source=source)
    assert plan.proof is not None
    assert plan.proof.files == ("data_0.pt", "data_9.pt")
    assert [one.listed.name for one in done.refused] == ["data_2.pt"]
    assert "as the proven files have" in str(done.refused[0].problems[0])
    told = refusal(asked(folder, tmp_path / "all", prove=10), source)
    assert (
        "hidden_states[0]: expected embed as --labels says, got final in data_2.pt (embed in 9 others)"
        in told
    )
    assert (
        "hidden_states[3]: expected final as --labels says, got embed in data_2.pt (final in 9 others)"
        in told
    )
    assert told.count("(take data_2.pt away, or make it anew)") == 4
    swapped = tuple(reversed(NAMES))
    told = refusal(asked(folder, tmp_path / "all", swapped, prove=10), source)
    assert "write --labels embed,layer1,layer2,final, and take data_2.pt away" in told


def test_a_file_that_is_nothing_of_the_target_is_named(
    written: Path, source: ModelSource, tmp_path: Path
) -> None:
    folder = changed(written, tmp_path / "noise", "data_4.pt", lambda states: states[1].normal_())
    told = refusal(asked(folder, tmp_path / "all", prove=10), source)
    assert "expected layer1 as --labels says, got nothing of this target in data_4.pt (layer1 in 9" in told
    assert "take data_4.pt away, or make it anew" in told


def test_a_row_of_nan_among_proven_files_is_told_as_such(
    written: Path, source: ModelSource, tmp_path: Path
) -> None:
    folder = changed(written, tmp_path / "nan", "data_2.pt", lambda states: states[1][5:].fill_(float("nan")))
    _, done = ingest(asked(folder, tmp_path, prove=2), source=source)
    assert [one.reason for one in done.refused] == ["non_finite"]


def test_labels_are_proven_where_every_file_is_in_the_dataset_already(
    written: Path, source: ModelSource, tmp_path: Path
) -> None:
    """The same tensors in another order: the dataset's schema alone says nothing against them."""
    ingest(asked(written, tmp_path), source=source)
    plan = plan_ingest(asked(written, tmp_path), 2, source)
    assert plan.nothing_to_do
    assert plan.proof is not None
    assert plan.proof.names == NAMES
    with pytest.raises(IngestError, match="write --labels embed,layer1,layer2,final"):
        plan_ingest(asked(written, tmp_path, ("layer1", "embed", "layer2", "final")), 2, source)


def test_of_a_dataset_that_is_added_to_the_files_that_are_new_are_proven(
    written: Path, source: ModelSource, tmp_path: Path
) -> None:
    """Few new ones among many would hardly be among those that are evenly spread over all."""

    def swap(states: list[torch.Tensor]) -> None:
        states[1], states[2] = states[2], states[1]

    folder = changed(written, tmp_path / "mixed", "data_4.pt", swap)
    late = (folder / "data_4.pt").rename(tmp_path / "late.pt")
    ingest(asked(folder, tmp_path), source=source)
    late.rename(folder / "data_4.pt")
    with pytest.raises(IngestError, match="got layer2") as error:
        plan_ingest(asked(folder, tmp_path, prove=2), 2, source)
    assert "write --labels embed,layer2,layer1,final" in str(error.value)
