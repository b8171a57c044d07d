"""What SpecForge's offline pipeline keeps comes in: EAGLE-3's records plain and compressed, and DSpark's."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.oracle import writers
from tests.oracle.wheels import CACHE, is_cached

pytestmark = pytest.mark.skipif(not is_cached("specforge", "0.2.0"), reason="run make oracle")
AUX, DSPARK_LAYERS = "aux_hidden_state", ("layer1", "layer4", "layer5")


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return writers.target_folder(request.param, tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def written(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("specforge")
    rows = writers.conversations("role", "content", "user", "assistant")
    data = folder / "conversations.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    out = folder / "out"
    out.mkdir()
    packages = [CACHE / "specforge-0.2.0"]
    writers.run("specforge_writes.py", target, data, out, packages=packages, folder=folder)
    return out


def labels_of(target: Path) -> tuple[str, ...]:
    """Return the boundaries of its default layers: the second, the middle one, the third before the last."""
    n_layers = json.loads((target / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"]
    return ("layer2", f"layer{n_layers // 2}", f"layer{n_layers - 3}", "final_normed")


def contents(folder: Path) -> list[dict[str, Any]]:
    found = []
    for file in sorted(folder.rglob("data_*")):
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        found.append(torch.load(io.BytesIO(data), weights_only=True))
    assert len(found) == len(writers.CONVERSATIONS)
    return found


def unpadded(content: dict[str, Any], aux: str, last: str) -> writers.Written:
    """Return a record without what its collator put behind the end of its turn."""
    ids = content["input_ids"].tolist()
    length = max(place for place, token in enumerate(ids) if token != 0) + 1
    states = (*content[aux][0].chunk(3, dim=-1), content[last][0])
    rows = tuple(one[:length] for one in states)
    return writers.Written(ids[:length], content["loss_mask"].tolist()[:length], rows)


def test_the_release_holds_no_command_that_saves() -> None:
    """As soon as one does, its loop is to be run in place of the test's."""
    assert list(CACHE.joinpath("specforge-0.2.0").rglob("*prepare_hidden_states*")) == []


@writers.targets
@pytest.mark.parametrize("name", ["eagle3", "compressed"])
def test_records_of_eagle3_come_in_without_their_padding(
    name: str, written: Path, target: Path, tmp_path: Path
) -> None:
    labels = labels_of(target)
    records = contents(written / name)
    assert {tuple(record[AUX].shape[:2]) for record in records} == {
        (1, len(record["input_ids"])) for record in records
    }
    code, said = writers.ingest("specforge", written / name, tmp_path, target, labels)
    assert code == 0
    writers.assert_proven(said, labels)
    expected = [unpadded(record, AUX, "hidden_state") for record in records]
    assert any(len(one.ids) < len(record["input_ids"]) for one, record in zip(expected, records, strict=True))
    writers.assert_in(tmp_path, expected, labels)


@writers.targets
def test_records_of_dspark_come_in(written: Path, target: Path, tmp_path: Path) -> None:
    labels = (*DSPARK_LAYERS, "final_normed")
    code, said = writers.ingest("specforge", written / "dspark", tmp_path, target, labels)
    assert code == 0
    writers.assert_proven(said, labels)
    names = ("hidden_states", "target_last_hidden_states")
    writers.assert_in(tmp_path, [unpadded(one, *names) for one in contents(written / "dspark")], labels)


@writers.targets
def test_the_keys_taken_for_the_names_in_training_are_refused(
    written: Path, target: Path, tmp_path: Path
) -> None:
    """In training `hidden_state` is the draft's input: who labels the keys so has the target first."""
    labels = labels_of(target)
    told = writers.refusal("specforge", written / "eagle3", tmp_path, target, (labels[-1], *labels[:-1]))
    assert f"write --labels {','.join(labels)}" in told
    told = writers.refusal("specforge", written / "eagle3", tmp_path, target, (*labels[:-1], "final"))
    assert "hidden_state: expected final as --labels says, got final_normed" in told
