"""What speculators' own pipeline over a real vLLM leaves: every slot is named, and the files come in."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import load_from_disk
from safetensors.torch import load_file

from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from deploy.demo.model import MODEL
from schemas.schema import INPUT_IDS, LOSS_MASK
from tests.with_vllm import pipeline

STRATA = Path(sys.executable).with_name("strata")
SLOTS = tuple(f"hidden_states[{slot}]" for slot in range(len(pipeline.NAMES)))
MARGIN = 8
"""The nearest other boundary of the one that is nearest to its own: 12 times as far, as it was seen."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prepared = pipeline.make(tmp_path_factory.mktemp("pipeline"))
    assert list((prepared.parent / "shared").iterdir()) == []
    return prepared


def strata(*words: str) -> tuple[int, str, str]:
    done = subprocess.run([str(STRATA), *words], capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout, done.stderr


def test_it_made_a_file_a_turn(prepared: Path) -> None:
    rows = load_from_disk(str(prepared))
    files = pipeline.files_of(prepared)
    assert [file.name for file in files] == [f"hs_{row}.safetensors" for row in range(len(rows))]
    assert len(files) >= pipeline.CONVERSATIONS
    assert max(rows["seq_len"]) == pipeline.SEQ_LENGTH


def test_identify_names_every_slot_of_every_file(prepared: Path, figures: list[str]) -> None:
    files = pipeline.files_of(prepared)
    words = ("identify", str(prepared / pipeline.STATES), "--target", str(MODEL), "--at-most", "99", "--json")
    code, out, err = strata(*words)
    assert code == 0, out + err
    said = json.loads(out)
    assert said["problems"] == []
    found = {(Path(slot["file"]).name, slot["slot"]): slot for slot in said["slots"]}
    assert set(found) == {(file.name, slot) for file in files for slot in SLOTS}
    for slot, name in zip(SLOTS, pipeline.NAMES, strict=True):
        these: list[Any] = [found[file.name, slot] for file in files]
        assert {one["found"]["name"] for one in these} == {name}
        assert [one["found"]["n_rows"] for one in these] == [one["n_tokens"] for one in these]
        assert [problem for one in these for problem in one["problems"]] == []
        margin = min(one["found"]["margin"] for one in these)
        median, p99 = (max(one["found"][figure] for one in these) for figure in ("median", "p99"))
        figures.append(
            f"pipeline, {slot} of {len(files)} files is {name}: median at most {median:.2%}, p99 "
            f"at most {p99:.2%}, the nearest other {margin:.0f} times as far or farther"
        )
        assert margin >= MARGIN, name


def test_the_files_come_in_bit_for_bit_with_their_labels_proven(prepared: Path, tmp_path: Path) -> None:
    code, out, err = strata(*ingesting(prepared, tmp_path, pipeline.NAMES))
    assert code == 0, out + err
    snapshot = Dataset.open(open_door(str(tmp_path)), "theirs").snapshot()
    rows = load_from_disk(str(prepared))
    stored = {
        bytes(sample.tokens[INPUT_IDS.name]): sample
        for sample in (snapshot.read(sample_id) for sample_id in snapshot.sample_ids)
    }
    assert len(stored) == len(rows)
    for row, file in zip(rows, pipeline.files_of(prepared), strict=True):
        theirs = load_file(file)
        sample = stored[np.asarray(row["input_ids"], np.int32).tobytes()]
        assert sample.tokens[LOSS_MASK.name].tolist() == list(row["loss_mask"])
        assert tuple(sample.tensors) == pipeline.NAMES
        for slot, name in enumerate(pipeline.NAMES):
            expected = theirs["hidden_states"][:, slot].contiguous().view(torch.int16).numpy()
            assert sample.tensors[name].tobytes() == expected.tobytes()
    code, out, err = strata("verify", f"{tmp_path}/theirs")
    assert code == 0, out + err


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (("layer3", "layer15", "layer27", "final"), ["[0]: expected layer3 as --labels says, got layer2"]),
        (
            ("layer2", "layer27", "layer15", "final"),
            ["[1]: expected layer27 as --labels says, got layer15", "[2]: expected layer15"],
        ),
        (("layer2", "layer15", "layer27", "final_normed"), ["[3]: expected final_normed", "got final ("]),
    ],
)
def test_wrong_labels_are_refused_with_what_each_slot_is(
    labels: tuple[str, ...], told: list[str], prepared: Path, tmp_path: Path
) -> None:
    code, _, err = strata(*ingesting(prepared, tmp_path, labels))
    assert code == 1, err
    for words in (*told, f"write --labels {','.join(pipeline.NAMES)}"):
        assert words in err
    assert list(tmp_path.iterdir()) == []


def ingesting(prepared: Path, root: Path, labels: tuple[str, ...]) -> list[str]:
    words = ["ingest", "--format", "speculators", "--dataset", f"{root}/theirs", "--target", str(MODEL)]
    return [*words, "--labels", ",".join(labels), str(prepared / pipeline.STATES)]
