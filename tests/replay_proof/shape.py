"""What a rightly trained draft scores under wrong wirings: bounds, since figures go with the training.

A draft that was trained longer (feasibility: 162 steps of 1,024 tokens, 3 epochs) scored 0.357 right, 0.313
and 0.339 off by one, 0.333 swapped, 0.046 reversed, 0.150 stale, 0.060 without its own states.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from datagen.engines.settings import EngineSettings
from datagen.engines.target_head import TargetHead
from datagen.replay.candidates import TRUE_TARGET, Candidate, Inputs, Source, off_by
from datagen.replay.cases import StoredCases
from datagen.replay.checkpoint import read_draft
from datagen.replay.draft import Draft
from datagen.replay.identify_sources import ModelSource
from datagen.replay.measuring import Case, measure
from datagen.replay.running import DraftRunner
from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from deploy.demo.model import MODEL
from schemas.boundary import FINAL_NORMED
from schemas.problem import Problem
from schemas.reference import parse_reference
from schemas.wiring import TargetRole
from tests.replay_proof.wirings import MEANT

LITTLE = 0.6
"""Of the right accuracy: what a draft without the states that it was trained on scores at most."""
ORDERS = {
    "off by one, deeper": off_by(MEANT, 1, 30),
    "off by one, shallower": off_by(MEANT, -1, 30),
    "first two swapped": ("layer15", "layer2", "layer27"),
    "reversed": MEANT[::-1],
    "rotated": (*MEANT[1:], MEANT[0]),
    "the last one three times": ("layer27",) * 3,
    "final in the last slot": (*MEANT[:2], "final"),
    "final_normed in the last slot": (*MEANT[:2], "final_normed"),
}
RIGHT, STALE, AHEAD = "right", "one token stale", "one token ahead"
FLOORS: dict[str, Source] = {"another sample's": "another sample", "zeros": "zeros"}
TWICE = "right, of what a target normed twice says"


class EveryBoundary:
    """Stored conversations with every boundary of theirs, by the model: a dataset stores a few."""

    def __init__(self, stored: StoredCases) -> None:
        self._stored = stored
        self._source = ModelSource.of(EngineSettings.model_validate({"model": str(MODEL)}))
        self._cases: dict[int, Case] = {}
        self.names = stored.names

    def __len__(self) -> int:
        return len(self._stored)

    def __getitem__(self, number: int) -> Case:
        if number not in self._cases:
            case = self._stored[number]
            states = self._source.states(case.ids)
            if isinstance(states, Problem):
                raise ValueError(str(states))
            self._cases[number] = replace(
                case, tensors=states, other=lambda: self[(number + 1) % len(self)].tensors
            )
        return self._cases[number]


def shape_of(dataset: str, draft: Path, samples: int) -> dict[str, float]:
    """Return the accuracy of a draft under each wiring, pooled over held-out conversations, in [0, 1]."""
    reference = parse_reference(dataset)
    snapshot = Dataset.open(open_door(reference.root), reference.dataset).snapshot(reference.version)
    cases = EveryBoundary(StoredCases(snapshot, samples))
    head = TargetHead.of(MODEL)
    runner = DraftRunner(Draft.of(read_draft(draft), head.embedding, target_lm_head=head.lm_head), head)
    tried = {RIGHT: Inputs(MEANT), STALE: Inputs(MEANT, moved=-1), AHEAD: Inputs(MEANT, moved=1)}
    tried |= {name: Inputs(fc) for name, fc in ORDERS.items() if fc is not None}
    tried |= {name: Inputs(MEANT, source=source) for name, source in FLOORS.items()}
    twice = TargetRole(tensor=FINAL_NORMED, applies_norm=True)
    measured = measure(runner, cases, len(cases), list(tried.values()), [TRUE_TARGET, twice], Silent())
    found = {name: measured[Candidate(inputs, TRUE_TARGET)] for name, inputs in tried.items()}
    found[TWICE] = measured[Candidate(Inputs(MEANT), twice)]
    return {name: scores.learned.pooled for name, scores in found.items()}


def faults_of(shape: Mapping[str, float]) -> list[str]:
    """Return in words what of the order is not as it should be.

    >>> faults_of({"right": 0.3, "one token stale": 0.4})
    ['one token stale: expected less than 1 of right (0.300), got 0.400']
    """
    less = [(name, RIGHT, 1.0) for name in shape if name != RIGHT]
    less += [(STALE, "off by one, deeper", 1.0), (STALE, "first two swapped", 1.0)]
    less += [(floor, STALE, 1.0) for floor in FLOORS]
    less += [(name, RIGHT, LITTLE) for name in ("reversed", "rotated", *FLOORS)]
    return [
        f"{name}: expected less than {share:g} of {other} ({shape[other]:.3f}), got {shape[name]:.3f}"
        for name, other, share in less
        if name in shape and other in shape and shape[name] >= share * shape[other]
    ]


class Silent:
    """Watches nothing."""

    def stage(self, words: str, total: int) -> None:
        """Say nothing."""

    def passed(self) -> None:
        """Count nothing."""
