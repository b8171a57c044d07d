"""`strata train-speculators` up to the trainer's first step, with speculators' own parser and config code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.demo.incident.environment import ENVIRONMENT
from tests.datagen.adapters.exports.builders import make_dataset

pytestmark = pytest.mark.skipif(
    not (ENVIRONMENT / "speculators").is_dir(), reason="speculators is not installed: run make train-demo"
)
CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 8,
    "hidden_size": 8,
    "vocab_size": 1000,
    "num_attention_heads": 2,
}
ASKING = """
import json, sys
from pathlib import Path
from schemas.errors import StrataError
from service.trainers.launching import Asked, plan_speculators
source, prepared, cases = sys.argv[1:]
for words in json.loads(cases):
    try:
        said = list(plan_speculators(Asked(source, Path(prepared)), words).words)
    except StrataError as error:
        said = str(error)
    print(json.dumps(said))
from hs_connectors import HiddenStatesBackend
from speculators.train.config.resolution import build_parser
given = build_parser().parse_args(["--hidden-states-backend", "strata", "--strata-source", source])
transfer = HiddenStatesBackend.registry["strata"].from_train_args(given, prepared)
print(json.dumps([given.hidden_states_backend, given.strata_source, type(transfer).__name__]))
"""


def test_its_own_parser_takes_the_words_and_what_contradicts_is_refused(tmp_path: Path) -> None:
    source, prepared = make_dataset(tmp_path), tmp_path / "p"
    for name, changed in {"target": {}, "other": {"hidden_size": 16}}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({**CONFIG, **changed}))
    (tmp_path / "run.yaml").write_text("train:\n  draft:\n    target_layer_ids: [2, 4, 6]\n")
    verifier = ["--verifier-name-or-path", str(tmp_path / "target")]
    cases = [
        verifier,
        [*verifier, "--target-layer-ids", "5", "4", "2"],
        [*verifier, "--config", str(tmp_path / "run.yaml")],
        ["--verifier-name-or-path", str(tmp_path / "other")],
        ["--verifier-name-or-path", str(tmp_path / "none")],
        [],
    ]
    words, order, file, shape, absent, nothing, reached = asked(source, prepared, cases)
    assert words[:2] == verifier
    assert words[2:6] == ["--data-path", str(prepared), "--hidden-states-backend", "strata"]
    assert words[6:10] == ["--target-layer-ids", "2", "4", "5"]
    assert words[-2:] == ["--strata-source", f"{source}@1"]
    assert "--target-layer-ids: expected 2 4 5 (layer2, layer4, layer5), got 5 4 2" in order
    assert "--target-layer-ids: expected 2 4 5 (layer2, layer4, layer5), got 2 4 6" in file
    assert "--verifier-name-or-path: expected hidden_size 8, as tiny has, got 16" in shape
    assert "the target's config cannot be read" in absent
    assert "the trainer does not take these arguments" in nothing
    assert "--verifier-name-or-path" in nothing
    assert reached == ["strata", source, "StrataTransfer"]


def asked(source: str, prepared: Path, cases: list[list[str]]) -> list[str | list[str]]:
    """Return the words of each launch, or what it is refused with."""
    path = os.pathsep.join([str(ENVIRONMENT.resolve()), str(Path(__file__).parents[2])])
    ran = subprocess.run(
        [sys.executable, "-c", ASKING, source, str(prepared), json.dumps(cases)],
        env=os.environ | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith(("[", '"'))]
