"""What ModelOpt's dumper over transformers writes comes in, where there is a clone of its examples."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.oracle import writers
from tests.oracle.checkouts import checkout
from tests.oracle.wheels import CACHE, is_cached, source

DUMPER = "compute_hidden_states_hf.py"
SCRIPT = checkout("Model-Optimizer") / "examples/speculative_decoding/collect_hidden_states" / DUMPER


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return writers.target_folder(request.param, tmp_path_factory.mktemp("target"))


@pytest.mark.skipif(not is_cached("modelopt", "0.47.0"), reason="run make oracle")
def test_the_released_wheel_holds_no_dumper() -> None:
    """As soon as one does, it is to be run as it stands."""
    assert list(source("modelopt", "0.47.0").rglob("compute_hidden_states*")) == []


@pytest.mark.skipif(not SCRIPT.is_file(), reason="run make oracle CHECKOUTS=DIR, with a clone of it in DIR")
@writers.targets
def test_what_it_dumps_comes_in(target: Path, tmp_path: Path) -> None:
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    n_layers: int = config["num_hidden_layers"]
    boundaries = (2, n_layers // 2, n_layers - 3)
    labels = (*(f"layer{boundary}" for boundary in boundaries), "final_normed")
    rows = writers.conversations("role", "content", "user", "assistant")
    data = tmp_path / "conversations.jsonl"
    data.write_text(
        "".join(f"{json.dumps({**row, 'conversation_id': row['id']})}\n" for row in rows), encoding="utf-8"
    )
    out = tmp_path / "dumps"
    words = ["--model", target, "--input-data", data, "--output-dir", out]
    if "common" in SCRIPT.read_text(encoding="utf-8"):  # what chooses layers since asks for all of ModelOpt
        words += ["--aux-layers", ",".join(str(boundary - 1) for boundary in boundaries)]
    writers.run(str(SCRIPT), *words, packages=[CACHE / "modelopt-0.47.0"], folder=tmp_path)
    assert {file.name for file in out.iterdir()} == {f"{row['id']}.pt" for row in rows}
    contents = [torch.load(file, weights_only=True) for file in sorted(out.iterdir())]
    has_masks = all("loss_mask" in content for content in contents)
    more = [] if has_masks else ["--masks", "ones"]

    told = writers.refusal("modelopt", out, tmp_path, target, (*labels[:-1], "final"), *more)
    assert "hidden_states: expected final as --labels says, got final_normed" in told
    code, said = writers.ingest("modelopt", out, tmp_path, target, labels, *more)
    assert code == 0
    writers.assert_proven(said, labels)
    writers.assert_in(tmp_path, map(written, contents), labels)


def written(content: dict[str, Any]) -> writers.Written:
    ids = content["input_ids"].tolist()
    mask = content["loss_mask"].tolist() if "loss_mask" in content else [1] * len(ids)
    states = (*content["aux_hidden_states"].chunk(3, dim=-1), content["hidden_states"])
    return writers.Written(ids, mask, states)
