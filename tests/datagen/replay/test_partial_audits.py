"""Audit sets of engines that cannot give every boundary: what replay and identify still say, and what not."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from datagen.commands.identify import open_audit
from datagen.errors import ConfigError
from datagen.planning.audit import audit_name, audit_schema
from datagen.replay.candidates import Inputs
from datagen.replay.errors import ReplayError
from datagen.replay.replaying import Answer, Replay, replay
from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from datagen.store.sample_data import SampleData
from tests.datagen.replay.planted import STORED, Plant, Planted, plant
from tests.datagen.store.real_parts import commit_samples

RIGHT = ("layer2", "layer3", "layer5")


class Unwatched:
    def stage(self, words: str, total: int) -> None:
        pass

    def passed(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def with_audit_of(made: Planted, names: Sequence[str] | None = None, *, trained: bool = True) -> Planted:
    """Make the audit set anew, of some of its tensors: as the engine of the run could give.

    Without `trained` no token of it is: beginnings of conversations are prompts alone, where they are short.
    """
    name = audit_name("demo")
    whole = Dataset.open(open_door(made.root), name).snapshot()
    schema = audit_schema(whole.schema.target, "bfloat16", names) if names else whole.schema
    samples = []
    for sample_id in whole.sample_ids:
        sample, at = whole.read(sample_id), whole.location(sample_id)
        samples.append(
            SampleData(
                sample_id=sample_id,
                prompt_id=at.prompt_id,
                conversation_id=at.conversation_id,
                source="audit",
                tokens=sample.tokens
                if trained
                else {**sample.tokens, "loss_mask": np.zeros_like(sample.tokens["loss_mask"])},
                tensors={name: sample.tensors[name] for name in schema.names},
                norms={name: sample.norms[name] for name in schema.names},
                text=None,
            )
        )
    shutil.rmtree(made.root / name)
    commit_samples(Dataset.create(open_door(made.root), name, schema, exist_ok=False), schema, samples)
    return made


def asked(made: Planted, *, try_all: bool = True) -> Answer:
    question = Replay(made.reference, made.draft, str(made.target), steps=2, min_pairs=240, try_all=try_all)
    return replay(question, Unwatched())


def test_what_an_audit_set_lacks_is_left_out_and_told(tmp_path: Path) -> None:
    names = (*STORED, "layer4", "final_normed")
    answer = asked(with_audit_of(plant(tmp_path, Plant()), names))
    assert answer.verdict.best.inputs == Inputs(RIGHT)
    assert answer.boundaries is not None
    tried = {name for one in answer.boundaries.measured for name in one.inputs.fc}
    assert "layer4" in tried
    assert "layer1" not in tried
    assert any(
        "demo.audit has not every boundary, since its engine could not give layer1" in note
        for note in answer.notes
    )
    assert any("which alone has every boundary but layer1," in said for said in answer.verdict.sentences)


def test_an_audit_set_without_a_last_state_shows_nothing_and_says_so(tmp_path: Path) -> None:
    answer = asked(with_audit_of(plant(tmp_path, Plant()), ("embed", "layer2", "layer3", "layer5")))
    assert answer.boundaries is None
    assert (
        "an off-by-one cannot be seen: demo.audit lacks final and final_normed, without which nothing there "
        "says what is right"
    ) in answer.verdict.sentences


def test_an_audit_set_without_a_trained_token_is_told_and_the_rest_answered(tmp_path: Path) -> None:
    answer = asked(with_audit_of(plant(tmp_path, Plant()), trained=False))
    assert answer.verdict.best.inputs == Inputs(RIGHT)
    assert answer.boundaries is None
    assert "an off-by-one cannot be seen: demo.audit has no trained token" in "\n".join(
        answer.verdict.sentences
    )


def test_what_neither_has_cannot_be_tried(tmp_path: Path) -> None:
    """Of the draft's layer3 neither the dataset nor the audit set has anything."""
    stored = ("embed", "layer2", "layer5", "final")
    made = with_audit_of(plant(tmp_path, Plant(), stored=stored), (*stored, "final_normed"))
    with pytest.raises(ReplayError, match="the dataset lacks layer3, and its audit set layer3"):
        asked(made, try_all=False)


def test_identify_takes_the_target_in_the_place_of_an_audit_set_that_is_not_whole(tmp_path: Path) -> None:
    made = with_audit_of(plant(tmp_path, Plant()), (*STORED, "final_normed"))
    with pytest.raises(ConfigError, match="cannot tell which tensor a slot is") as caught:
        open_audit(f"{made.root}/demo.audit")
    (problem,) = caught.value.problems
    assert "whose engine could not give layer1, layer4" in problem.message
    assert "--target" in str(problem.repair)
