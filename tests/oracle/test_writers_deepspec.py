"""What DeepSpec's own writer makes comes in, where there is a clone of it: it is on no index."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from tests.oracle import writers
from tests.oracle.checkouts import checkout

CLONE = checkout("DeepSpec")
pytestmark = pytest.mark.skipif(
    not (CLONE / "deepspec/data/target_cache_dataset.py").is_file(),
    reason="run make oracle CHECKOUTS=DIR, with a clone of it in DIR",
)
LAYER_IDS = (-1, 1, 3, 4)
LABELS = ("embed", "layer2", "layer4", "layer5", "final_normed")
"""The same as boundaries, and the state behind the norm."""


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return writers.target_folder(request.param, tmp_path_factory.mktemp("target"))


@writers.targets
def test_its_cache_comes_in_of_several_shards(target: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(target)
    rows = []
    for row in writers.conversations("role", "content", "user", "assistant"):
        text = tokenizer.apply_chat_template(row["conversations"], tokenize=False)
        ids = tokenizer(text)["input_ids"]
        rows.append({"input_ids": ids, "loss_mask": [0] * 8 + [1] * (len(ids) - 8)})
    data, out = tmp_path / "rows.json", tmp_path / "cache"
    data.write_text(json.dumps(rows), encoding="utf-8")
    writers.run("deepspec_writes.py", CLONE, target, data, out, *LAYER_IDS, packages=[], folder=tmp_path)
    assert len(list(out.glob("shard-*.bin"))) > 1
    handed = torch.load(out.with_suffix(".pt"), weights_only=True)
    assert [one["input_ids"].tolist() for one in handed] == [row["input_ids"] for row in rows]

    told = writers.refusal("deepspec", out, tmp_path, target, ("embed", "layer1", "layer3", *LABELS[-2:]))
    assert f"write --labels {','.join(LABELS)}" in told
    code, said = writers.ingest("deepspec", out, tmp_path, target, LABELS)
    assert code == 0
    writers.assert_proven(said, LABELS)
    written = [
        writers.Written(
            one["input_ids"].tolist(),
            one["loss_mask"].tolist(),
            (*one["target_hidden_states"].chunk(len(LAYER_IDS), dim=-1), one["target_last_hidden_states"]),
        )
        for one in handed
    ]
    writers.assert_in(tmp_path, written, LABELS)
