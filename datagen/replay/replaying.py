"""The whole of a replay: what is asked in, every score and the verdict out."""

from dataclasses import dataclass, field
from pathlib import Path

from datagen.engines.errors import OpeningError
from datagen.engines.model_files import locate
from datagen.engines.settings import EngineSettings
from datagen.engines.target_head import TargetHead
from datagen.engines.weights import weights_digest
from datagen.errors import ConfigError
from datagen.planning.audit import audit_name
from datagen.planning.audit_names import lacking_of
from datagen.replay.cases import MAX_TOKENS, StoredCases
from datagen.replay.checkpoint import read_draft
from datagen.replay.declaring import Declaration, Said, declare
from datagen.replay.draft import Draft
from datagen.replay.errors import ReplayError
from datagen.replay.measuring import Watch
from datagen.replay.running import DraftRunner
from datagen.replay.screening import MIN_PAIRS, Findings, Question, search, search_boundaries
from datagen.replay.verdict import Verdict, judge
from datagen.store.dataset import Dataset
from datagen.store.door import Door
from datagen.store.errors import NotFoundError
from datagen.store.opening import open_door
from datagen.store.snapshot import Snapshot
from datagen.wiring.inputs import read_dataset
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
    split: str | None = None
    """Only samples of this split: a draft knows those that it was trained on better than others."""
    n_samples: int = 40
    steps: int = 3
    try_all: bool = True
    min_pairs: int = MIN_PAIRS
    """Counted pairs that are screened on; fewer are quicker and may mislead."""


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
    if not asked.try_all and not (declaration.trained or declaration.served):
        raise ConfigError("nothing is declared that could be tried", _undeclared(declaration))
    folder, head = _open_target(asked.target)
    target = dataset.schema.target
    _check_shapes(target, head, checkpoint.sizes.slot_width)
    runner = DraftRunner(Draft.of(checkpoint, head.embedding, target_lm_head=head.lm_head), head)
    snapshot = Dataset.open(door, reference.dataset).snapshot(reference.version)
    audit, why_not = _audit(door, reference.dataset, target)
    question = Question(
        trained=declaration.trained,
        served=declaration.served,
        n_layers=target.n_layers,
        try_all=asked.try_all,
        steps=asked.steps,
        min_pairs=asked.min_pairs,
    )
    cases, note = _cases(snapshot, audit, question, asked)
    findings = search(runner, cases, question, watch)
    boundaries = None
    if audit is not None:
        every = StoredCases(audit, asked.n_samples)
        # An audit set has what its dataset has; one that was put there by hand may not.
        if unknown := sorted(set(findings.best.inputs.fc) - set(every.names)):
            why_not = f"{audit_name(reference.dataset)} lacks {', '.join(unknown)}"
        else:
            boundaries = search_boundaries(runner, every, question, findings, watch)
    notes = [
        *declaration.notes,
        *(problem.message for problem in checkpoint.notes),
        *_of_target(target, folder),
    ]
    if findings.left_out:
        notes.append(findings.left_out)
    if note is not None:
        notes.append(note)
    if boundaries is not None and audit is not None and (lacking := lacking_of(audit.schema)):
        name = audit_name(reference.dataset)
        notes.append(
            f"{name} has not every boundary, since its engine could not give {', '.join(lacking)}: whether "
            "the draft was trained on one of those cannot be seen"
        )
    notes += _of_splits(snapshot, asked.split)
    if cases.n_cut:
        notes.append(
            f"{cases.n_cut} of {len(cases)} samples are longer than the {MAX_TOKENS:,} tokens that are read"
        )
    verdict = judge(declaration, findings, boundaries, why_not, target.n_layers)
    return Answer(
        reference=str(reference),
        draft=asked.draft.resolve().name,
        n_layers=target.n_layers,
        declaration=declaration,
        findings=findings,
        on_audit=note is not None,
        boundaries=boundaries,
        verdict=verdict,
        notes=tuple(notes),
    )


def _undeclared(declaration: Declaration) -> list[Problem]:
    """Return why there is no declared wiring to try."""
    told = (
        "; ".join(declaration.notes)
        or "neither a trainer nor a server that takes as many tensors as the draft"
    )
    problem = Problem(
        where="--wirings",
        kind="declared",
        message=f"expected a wiring that somebody declares, got none: {told}",
        repair="name --trainer, --card or --server, or try all wirings",
    )
    return [*declaration.problems, *declaration.served_problems, problem]


def _open_target(model: str) -> tuple[Path, TargetHead]:
    """Return the target's folder and its last layer; raises `ReplayError` for what is no such model."""
    try:
        folder = locate(EngineSettings(name="hf", model=model), with_weights=True).folder
        return folder, TargetHead.of(folder)
    except OpeningError as error:
        repair = "give the target's folder, config.json beside its *.safetensors, or its hub id"
        problems = [one.model_copy(update={"repair": one.repair or repair}) for one in error.problems]
        raise ReplayError("the target cannot be opened", problems) from error


def _cases(
    snapshot: Snapshot, audit: Snapshot | None, question: Question, asked: Replay
) -> tuple[StoredCases, str | None]:
    """Return the cases to search on, with a note where the audit set has to stand in for the dataset."""
    stored = set(snapshot.schema.names)
    if audit is not None and not {FINAL, FINAL_NORMED} & stored:
        note = "the dataset has no last state to say what is right: its tensors are tried on the audit set"
        return StoredCases(audit, asked.n_samples, sorted(stored)), note
    cases = StoredCases(snapshot, asked.n_samples, split=asked.split)
    if question.try_all or any(set(one.fc) <= set(cases.names) for one in question.declared):
        return cases, None
    wanted = {name for one in question.declared for name in one.fc}
    said = f"the dataset lacks {', '.join(sorted(wanted - set(cases.names)))}"
    if audit is not None:
        every = StoredCases(audit, asked.n_samples)
        if any(set(one.fc) <= set(every.names) for one in question.declared):
            return every, f"{said}: what is declared is tried on the audit set"
        said += f", and its audit set {', '.join(sorted(wanted - set(every.names)))}"
    raise ReplayError("what is declared cannot be tried", [_untried(said)])


def _untried(said: str) -> Problem:
    return Problem(
        where="fc",
        kind="missing",
        message=f"expected the tensors that are declared, got none of them whole: {said}",
        repair="try all wirings, capture what is missing, or keep the dataset's audit set beside it",
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


def _of_splits(snapshot: Snapshot, split: str | None) -> list[str]:
    """Return a note where samples of every split are drawn, those for training among them."""
    if split is not None or not snapshot.version.splits:
        return []
    names = ", ".join(name for rule in snapshot.version.splits for name, _ in rule.fractions)
    return [f"samples of every split ({names}) are replayed; a draft knows what it was trained on: --split"]


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
    if not {FINAL, FINAL_NORMED} & set(snapshot.schema.names):
        return None, f"{name} lacks final and final_normed, without which nothing there says what is right"
    try:
        StoredCases(snapshot, 1)
    except ReplayError:
        return None, f"{name} has no trained token (audit.max_tokens may have cut every answer off)"
    return snapshot, ""
