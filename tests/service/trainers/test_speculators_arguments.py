"""The trainer's own words: what they lack is added, what contradicts the dataset is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.trainers.errors import TrainerError
from service.trainers.held import open_held
from service.trainers.prepared import Prepared
from service.trainers.speculators_arguments import (
    Settings,
    completed,
    contradictions,
)
from tests.datagen.adapters.exports.builders import make_dataset
from tests.service.trainers.places import prepared_from

DEFAULTS: dict[str, Any] = {
    "speculator_type": "eagle3",
    "data_path": "./output",
    "hidden_states_backend": "file",
    "hidden_states_path": None,
    "strata_source": None,
    "target_layer_ids": None,
    "train_data_ratio": 0.9,
    "on_missing": "generate",
    "from_pretrained": None,
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Ten rows, two a conversation, of which the first nine would be trained on by default."""
    root = tmp_path_factory.mktemp("root")
    return prepared_from(open_held(make_dataset(root)), root / "p")


def told(**said: object) -> Settings:
    return Settings({**DEFAULTS, **said}, frozenset(said))


def problems_of(settings: Settings, prepared: Prepared) -> list[str]:
    """Return what is told of the settings, before the folder is there and after."""
    found = [*contradictions(settings, prepared.meant.card.wiring, prepared.folder)]
    try:
        completed([], settings, prepared, "data/demo@1")
    except TrainerError as error:
        found += error.problems
    return [str(problem) for problem in found]


def test_what_is_not_said_is_added(prepared: Prepared) -> None:
    words = completed(["--lr", "1e-3"], told(), prepared, "data/demo@1")
    assert words[:2] == ["--lr", "1e-3"]
    added = dict(zip(*[iter(" ".join(words[2:]).replace("2 4 5", "2,4,5").split())] * 2, strict=True))
    assert int(prepared.n_rows * float(added.pop("--train-data-ratio"))) == prepared.n_train == 8
    assert added == {
        "--data-path": str(prepared.folder),
        "--hidden-states-backend": "strata",
        "--target-layer-ids": "2,4,5",
        "--on-missing": "raise",
        "--strata-source": "data/demo@1",
    }


def test_what_is_said_and_right_is_left_as_it_is(prepared: Prepared) -> None:
    said = told(
        data_path=str(prepared.folder / ".." / "p"),
        hidden_states_backend="strata",
        target_layer_ids=[2, 4, 5],
        train_data_ratio=0.65,
        on_missing="skip",
    )
    assert not problems_of(said, prepared)
    assert completed(["--x"], said, prepared, "data/demo@1") == ["--x", "--strata-source", "data/demo@1"]


@pytest.mark.parametrize(
    ("said", "told_of"),
    [
        (
            {"target_layer_ids": [4, 2, 5]},
            "--target-layer-ids: expected 2 4 5 (layer2, layer4, layer5), got 4 2 5",
        ),
        ({"target_layer_ids": [2, 4]}, "--target-layer-ids: expected 2 4 5"),
        ({"data_path": "elsewhere"}, "--data-path: expected"),
        ({"hidden_states_backend": "file"}, "--hidden-states-backend: expected strata, got 'file'"),
        ({"hidden_states_path": "states"}, "--hidden-states-path: expected it left out"),
        ({"strata_source": "data/other"}, "--strata-source: expected it left out"),
        ({"speculator_type": "mtp"}, "--speculator-type: expected one of eagle3"),
        ({"train_data_ratio": 1.0}, "--train-data-ratio: expected a ratio that has rows on both sides"),
        ({"train_data_ratio": 0.05}, "--train-data-ratio: expected a ratio that has rows on both sides"),
        ({"train_data_ratio": -0.2}, "--train-data-ratio: expected a ratio that has rows on both sides"),
        ({"train_data_ratio": 0.5}, "--train-data-ratio: expected a cut between two conversations"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_what_contradicts_is_refused_by_name(
    prepared: Prepared, said: dict[str, object], told_of: str
) -> None:
    (found,) = problems_of(told(**said), prepared)
    assert told_of in found


def test_everything_is_told_at_once(prepared: Prepared) -> None:
    settings = told(target_layer_ids=[1], data_path="x", speculator_type="mtp")
    assert len(problems_of(settings, prepared)) == 3


@pytest.mark.parametrize("key", ["eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids"])
def test_a_draft_to_go_on_with_must_be_of_the_same_input(
    prepared: Prepared, tmp_path: Path, key: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({key: [2, 4, 6]}))
    settings = told(from_pretrained=str(tmp_path))
    (found,) = problems_of(settings, prepared)
    assert "--from-pretrained: expected a draft whose input is 2 4 5 " in found
    assert "got one of 2 4 6" in found
    (tmp_path / "config.json").write_text(json.dumps({key: [2, 4, 5]}))
    assert not problems_of(settings, prepared)


def test_all_rows_for_training_are_refused_as_the_trainer_would(tmp_path: Path) -> None:
    one = prepared_from(open_held(make_dataset(tmp_path, lengths=(5, 6))), tmp_path / "p")
    with pytest.raises(TrainerError, match="--train-data-ratio: expected rows held out"):
        completed([], told(), one, "s")
