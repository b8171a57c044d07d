"""Whole replays of drafts whose right wiring was planted: it is named, and what is declared is judged."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from datagen.replay.candidates import TRUE_TARGET, Candidate, Change, Inputs
from datagen.replay.declaring import Said
from datagen.replay.errors import ReplayError
from datagen.replay.replaying import Answer, Replay, replay
from schemas.wiring import TargetRole
from tests.datagen.replay.planted import STORED, Plant, Planted, plant

RIGHT = ("layer2", "layer3", "layer5")


class Counting:
    """Checks that the work is as long as it says beforehand."""

    def __init__(self) -> None:
        self.left = 0

    def stage(self, words: str, total: int) -> None:
        assert self.left == 0, f"{self.left} passes less than was said before {words}"
        self.left = total

    def passed(self) -> None:
        self.left -= 1
        assert self.left >= 0


Asking = Callable[..., Answer]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def ask(tmp_path: Path) -> Asking:
    """Plant, ask, and return the answer."""

    def asked(
        how: Plant,
        said: Said | None = None,
        *,
        stored: Sequence[str] = STORED,
        n: int = 12,
        spoil: Callable[[Planted], None] | None = None,
        try_all: bool = True,
    ) -> Answer:
        made = plant(tmp_path, how, n=n, stored=stored)
        if spoil is not None:
            spoil(made)
        watch = Counting()
        answer = replay(
            Replay(
                made.reference,
                made.draft,
                str(made.target),
                said or Said(),
                steps=2,
                min_pairs=240,
                try_all=try_all,
            ),
            watch,
        )
        assert watch.left == 0
        return answer

    return asked


def _make_foreign(made: Planted) -> None:
    """Give the draft an `fc` of its own, which has nothing to do with these states."""
    file = made.draft / "model.safetensors"
    weights = load_file(file)
    weights["fc.weight"] = torch.randn(weights["fc.weight"].shape, generator=torch.Generator().manual_seed(9))
    save_file(weights, file)


def told(answer: Answer) -> str:
    return "\n".join(answer.verdict.sentences)


def test_the_right_wiring_is_named_and_what_is_declared_holds(ask: Asking) -> None:
    answer = ask(Plant())
    assert answer.verdict.best == Candidate(Inputs(RIGHT), TRUE_TARGET)
    assert answer.verdict.is_as_declared
    assert answer.verdict.is_well
    assert "trained with layer2, layer3, layer5: they score" in told(answer)
    assert "no off-by-one" in told(answer)
    shown = {one.inputs for one in answer.findings.measured}
    assert {Inputs(RIGHT, moved=-1), Inputs(RIGHT, moved=1), Inputs(RIGHT, source="zeros")} <= shown


@pytest.mark.parametrize(
    "fc",
    [
        ("embed", "layer2", "layer3"),
        ("layer5", "layer3", "layer2"),
        ("layer5", "layer5", "layer2"),
    ],
    ids=["embed first", "reversed", "one twice"],
)
def test_a_draft_of_another_wiring_is_seen_and_what_serving_it_costs(
    fc: tuple[str, ...], ask: Asking
) -> None:
    answer = ask(Plant(fc=fc), Said(server="vllm==0.33.0"))
    assert answer.verdict.best.inputs == Inputs(fc)
    assert answer.verdict.is_as_declared is False
    assert answer.verdict.is_as_served is False
    words = told(answer)
    assert f"trained with {', '.join(fc)}" in words
    assert "the server declared, vllm==0.33.0, would feed layer2, layer3, layer5: expect" in words


def test_states_one_token_stale_are_seen(ask: Asking) -> None:
    answer = ask(Plant(moved=-1))
    assert answer.verdict.best.inputs == Inputs(RIGHT, moved=-1)
    assert not answer.verdict.is_well


def test_a_wrong_target_is_seen(ask: Asking) -> None:
    """As in the incident: a middle layer was taken for the last state."""
    answer = ask(Plant(fc=("embed", "layer2", "layer3"), target="layer5"))
    best = answer.verdict.best
    assert best.inputs == Inputs(("embed", "layer2", "layer3"))
    assert best.target.tensor == "layer5"
    assert "in common with the tokens of layer5" in told(answer)
    assert answer.verdict.is_as_declared is False


def test_a_norm_flag_that_the_config_lost_is_seen(ask: Asking) -> None:
    def spoil(made: Planted) -> None:
        file = made.draft / "config.json"
        text = file.read_text()
        assert '"norm_before_residual": true' in text
        file.write_text(text.replace('"norm_before_residual": true', '"norm_before_residual": false'))

    answer = ask(Plant(), spoil=spoil)
    assert answer.verdict.best.inputs == Inputs(RIGHT, changes=(Change("norm_before_residual", on=True),))
    assert answer.verdict.is_as_declared is False


def test_an_off_by_one_is_seen_on_the_audit_set_alone(ask: Asking) -> None:
    """Trained on layer4 in its last slot, which is not stored: its neighbour is the best of the rest."""
    answer = ask(Plant(fc=("layer2", "layer3", "layer4"), noise=0.05))
    assert answer.verdict.best.inputs == Inputs(("layer2", "layer3", "layer4"))
    assert "layer4" not in answer.findings.best.inputs.fc
    assert answer.verdict.is_as_declared is False


def test_a_draft_that_knows_nothing_of_these_states_is_told(ask: Asking) -> None:
    answer = ask(Plant(), spoil=_make_foreign)
    assert "nothing stands out" in told(answer)
    assert not answer.verdict.is_well


def test_without_a_last_state_the_audit_set_says_what_is_right(ask: Asking) -> None:
    """The incident's dataset: four tensors, none of them the last state."""
    answer = ask(Plant(), stored=("embed", "layer2", "layer3", "layer5"))
    assert answer.on_audit
    assert answer.verdict.best == Candidate(Inputs(RIGHT), TRUE_TARGET)
    assert any("has no last state" in note for note in answer.notes)


def test_a_target_that_is_not_stored_is_tried_on_the_audit_set(ask: Asking, tmp_path: Path) -> None:
    """The trainer's own wiring file says a middle layer, as the incident's list did."""
    wiring = tmp_path / "mine.toml"
    wiring.write_text(
        '[wiring]\nname = "mine"\nkind = "trainer"\nfc = ["embed", "layer2", "layer3"]\n'
        '[wiring.target]\ntensor = "layer4"\napplies_norm = true\n'
    )
    fc = ("embed", "layer2", "layer3")
    answer = ask(Plant(fc=fc, target="layer4"), Said(trainer_wiring=wiring))
    trained = Candidate(Inputs(fc), TargetRole(tensor="layer4", applies_norm=True))
    assert answer.declaration.trained == trained
    assert answer.boundaries is not None
    assert answer.boundaries.best == trained
    assert answer.verdict.best == trained
    assert answer.verdict.is_as_declared


def test_a_target_of_another_size_is_refused(ask: Asking, tmp_path: Path) -> None:
    def spoil(made: Planted) -> None:
        file = made.target / "config.json"
        file.write_text(file.read_text().replace('"vocab_size": 96', '"vocab_size": 80'))

    with pytest.raises(ReplayError) as caught:
        ask(Plant(), spoil=spoil)
    assert "expected the vocabulary 96 of the dataset's target, got 80" in str(caught.value)
