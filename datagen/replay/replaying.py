"""The whole of a replay: what is asked in, every score and the verdict out."""

from dataclasses import dataclass, field
from pathlib import Path

from datagen.audit import audit_name
from datagen.engines.model_files import locate
from datagen.engines.settings import EngineSettings
from datagen.engines.weights import weights_digest
from datagen.replay.cases import StoredCases
from datagen.replay.checkpoint import read_draft
from datagen.replay.declaring import Declaration, Said, declare
from datagen.replay.draft import Draft
from datagen.replay.errors import ReplayError
from datagen.replay.measuring import Watch
from datagen.replay.running import DraftRunner
from datagen.replay.screening import Findings, search, search_boundaries
from datagen.replay.target_head import TargetHead
from datagen.replay.verdict import Verdict, judge
from datagen.store.dataset import Dataset
from datagen.store.door import Door
from datagen.store.errors import NotFoundError
from datagen.store.opening import open_door
from datagen.store.snapshot import Snapshot
from datagen.wiring_inputs import read_dataset
from schemas.boundary import FINAL, FINAL_NORMED
from schemas.problem import Problem
from schemas.reference import parse_reference
from schemas.target import Target


@dataclass(frozen=True)
class Replay:
    """What is asked of a replay."""

    dataset: str
    draft: Path
    target: str
    said: Said = field(default_factory=Said)
    n_samples: int = 40
    steps: int = 3
    try_all: bool = True


@dataclass(frozen=True)
class Answer:
    """What was found: on stored tensors, on the audit set where there is one, and in words."""

    reference: str
    draft: str
    n_layers: int
    declaration: Declaration
    findings: Findings
    on_audit: bool
    """Whether even the stored tensors were tried on the audit set, since the dataset has no last state."""
    boundaries: Findings | None
    verdict: Verdict
    notes: tuple[str, ...]


def replay(asked: Replay, watch: Watch) -> Answer:
    """Load the draft and its target, try the wirings, and judge what is declared.

    Raises `StrataError` where something that was named cannot be read, or does not fit the dataset.
    """
    dataset = read_dataset(asked.dataset)
    reference = parse_reference(dataset.reference)
    door = open_door(reference.root)
    checkpoint = read_draft(asked.draft)
    declaration = declare(asked.said, dataset, asked.draft, checkpoint)
    folder = locate(EngineSettings(name="hf", model=asked.target), with_weights=True).folder
    head = TargetHead.of(folder)
    target = dataset.schema.target
    _check_shapes(target, head, checkpoint.sizes.slot_width)
    runner = DraftRunner(Draft.of(checkpoint, head.embedding, target_lm_head=head.lm_head), head)
    snapshot = Dataset.open(door, reference.dataset).snapshot(reference.version)
    audit, why_not = _audit(door, reference.dataset, target)
    stored = set(snapshot.schema.names)
    on_audit = not {FINAL, FINAL_NORMED} & stored and audit is not None
    if on_audit and audit is not None:
        cases = StoredCases(audit, asked.n_samples, sorted(stored))
    else:
        cases = StoredCases(snapshot, asked.n_samples)
    question = declaration.question(target.n_layers, try_all=asked.try_all, steps=asked.steps)
    findings = search(runner, cases, question, watch)
    boundaries = None
    if audit is not None:
        every = StoredCases(audit, asked.n_samples)
        boundaries = search_boundaries(runner, every, question, findings.best.inputs, watch)
    notes = [
        *declaration.notes,
        *(problem.message for problem in checkpoint.notes),
        *_of_target(target, folder),
    ]
    if findings.left_out:
        notes.append(findings.left_out)
    if on_audit:
        notes.append(
            "the dataset has no last state to say what is right: its tensors are tried on the audit set"
        )
    verdict = judge(declaration, findings, boundaries, why_not, target.n_layers)
    return Answer(
        reference=str(reference),
        draft=asked.draft.resolve().name,
        n_layers=target.n_layers,
        declaration=declaration,
        findings=findings,
        on_audit=on_audit,
        boundaries=boundaries,
        verdict=verdict,
        notes=tuple(notes),
    )


def _check_shapes(target: Target, head: TargetHead, slot_width: int) -> None:
    """Raise `ReplayError` where the model, the draft and the dataset are of different sizes."""
    found = (
        ("target", "vocabulary", target.vocab_size, len(head.lm_head)),
        ("target", "width", target.hidden_size, head.lm_head.shape[1]),
        ("draft", "slot width", target.hidden_size, slot_width),
    )
    problems = [
        Problem(
            where=where,
            kind="shape",
            message=f"expected the {what} {wanted} of the dataset's target, got {got}",
            repair="give the model that the dataset was made with, and a draft for it",
        )
        for where, what, wanted, got in found
        if wanted != got
    ]
    if problems:
        raise ReplayError("dataset, draft and target do not fit one another", problems)


def _of_target(target: Target, folder: Path) -> list[str]:
    """Return a note where the model's weights are not, or may not be, those that made the dataset."""
    digest = weights_digest(folder)
    if isinstance(digest, Problem) or digest.method != target.weights.method:
        return ["whether the model is the one that the dataset was made with cannot be told by its files"]
    if digest.sha256 == target.weights.sha256:
        return []
    return [f"the files of {folder.name} are not those of {target.model_id}, which the dataset was made with"]


def _audit(door: Door, dataset: str, target: Target) -> tuple[Snapshot | None, str]:
    """Return the audit set, or why there is none to try every boundary on."""
    name = audit_name(dataset)
    try:
        snapshot = Dataset.open(door, name).snapshot()
    except NotFoundError:
        return None, f"there is no audit set {name}, and no other samples have every boundary"
    if snapshot.schema.target.identity() != target.identity():
        return None, f"{name} is of another target"
    return snapshot, ""
