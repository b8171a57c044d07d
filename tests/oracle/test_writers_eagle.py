"""What EAGLE's own script writes comes in: `ge_data_all_vicuna.py` of eagle-llm 1.2.1, run as it stands."""

import json
from pathlib import Path

import pytest
import torch

from tests.oracle import writers
from tests.oracle.wheels import CACHE, is_cached, source

pytestmark = pytest.mark.skipif(
    not (is_cached("eagle", "1.2.1") and is_cached("fastchat", "0.2.36")), reason="run make oracle"
)
MODEL, DATA = "vicunav13/13B", "ShareGPT_V4.3_unfiltered_cleaned_split.json"
"""Where the script looks for them, beneath the folder that it is run in."""
LABELS = ("final_normed",)


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return writers.target_folder(request.param, tmp_path_factory.mktemp("target"))


@writers.targets
def test_the_last_state_that_it_writes_comes_in(target: Path, tmp_path: Path) -> None:
    (tmp_path / MODEL).parent.mkdir()
    (tmp_path / MODEL).symlink_to(target)
    rows = writers.conversations("from", "value", "human", "gpt")
    (tmp_path / DATA).write_text(json.dumps(rows), encoding="utf-8")
    script = source("eagle", "1.2.1") / "ge_data" / "ge_data_all_vicuna.py"
    words = ("--start", 0, "--end", len(rows), "--index", 0, "--outdir", "sharegpt_0_67999_mufp16")
    writers.run("eagle_writes.py", script, *words, packages=[CACHE / "fastchat-0.2.36"], folder=tmp_path)
    out = tmp_path / "sharegpt_0_67999_mufp16"
    files = sorted(out.rglob("*"))
    assert [file.relative_to(out).as_posix() for file in files if file.is_file()] == [
        f"0/data_{number}.ckpt" for number in range(len(rows))
    ]
    contents = [torch.load(file, weights_only=True) for file in files if file.is_file()]
    assert all(content["hidden_state"].dtype == torch.float16 for content in contents)

    told = writers.refusal("eagle", out, tmp_path, target, ["final"])
    assert "hidden_state: expected final as --labels says, got final_normed" in told
    code, said = writers.ingest("eagle", out, tmp_path, target, LABELS)
    assert code == 0
    writers.assert_proven(said, LABELS)
    written = [
        writers.Written(
            content["input_ids"].tolist(), content["loss_mask"].tolist(), (content["hidden_state"],)
        )
        for content in contents
    ]
    assert any(0 < sum(one.mask) < len(one.mask) for one in written)
    writers.assert_in(tmp_path, written, LABELS)
