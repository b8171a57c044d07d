"""What an ingest will write, known before a byte of it is: the samples, their schema, labels that hold.

Nothing is written here. All that is wrong with the files as a whole is told at once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from datagen.adapters.errors import ForeignFileError
from datagen.adapters.imports.format import ALL_TRAINED, ImportOptions, OpenFiles
from datagen.driver.resume import Held, held
from datagen.engines.loading import place_of_work
from datagen.engines.opening import ending_token_ids, read_target
from datagen.engines.settings import EngineSettings
from datagen.errors import ConfigError, IngestError, SpaceError
from datagen.ingest.asked import Asked
from datagen.ingest.beside import Beside, read_beside
from datagen.ingest.facts import Facts, Refusal, SlotFacts, usual
from datagen.ingest.formats import format_of
from datagen.ingest.labels import flag_problem, flags_problems, label_problems, labels_of, missing_labels
from datagen.ingest.looking import Looked, look, sorted_out
from datagen.ingest.mask_notes import Masked, mask_notes
from datagen.ingest.proof import Beginnings, Proof, proof_problems, prove, to_prove
from datagen.printing import printable
from datagen.replay.identify_sources import ModelSource, Source
from datagen.store.door import Door
from datagen.store.opening import open_door
from datagen.store.trainer_rows import ROWS
from schemas.problem import Problem
from schemas.provenance import Provenance, identity_differences
from schemas.reference import DatasetReference, parse_reference
from schemas.schema import DType, Schema
from schemas.target import Target

ENGINE = "ingest"
"""What stands in the provenance of a sample that no engine of ours made."""
NO_LIMIT = 2**31 - 1
"""Tokens of the longest sample: nothing was cut here."""
_TOLD = 20
_NOTHING_TO_TRY = frozenset({"file", "loss_mask"})
"""Kinds of problems of files as a whole for which none was opened: no samples, or no masks beside them."""

OnStep = Callable[[str, int, int], None]
"""Called with what is done (`look`, `prove`), how much of it, and how much there is."""


@dataclass(frozen=True)
class Opened:
    """Files of one format that were found, what lies beside them, and where they are to go."""

    reference: DatasetReference
    door: Door
    files: OpenFiles
    target: Target
    beside: Beside


@dataclass(frozen=True)
class IngestPlan:
    """What will be written into which dataset; `labels` are the tensors of `slots`, in their order."""

    asked: Asked
    opened: Opened
    slots: tuple[SlotFacts, ...]
    labels: tuple[str, ...]
    said_by: str
    schema: Schema
    provenance: Provenance
    looked: Looked
    held: Held
    proof: Proof | None
    notes: tuple[Problem, ...]

    @property
    def nothing_to_do(self) -> bool:
        """Whether the dataset has every sample already, and none was refused."""
        return not self.looked.fresh and not self.looked.refused

    @property
    def payload_bytes(self) -> int:
        """Bytes of the states that are to be written."""
        return self.looked.n_tokens * self.schema.token_bytes

    @property
    def all_trained(self) -> bool:
        """Whether samples without a loss mask are trained on every token."""
        return self.asked.masks == ALL_TRAINED

    def conversation_of(self, facts: Facts) -> str:
        """Return the conversation of a sample: as a list of rows beside, the file, or its name says."""
        known = self.opened.beside.conversations.get(facts.sample_id)
        return printable(known or facts.conversation_id or facts.listed.name)


def plan_ingest(
    asked: Asked, workers: int, source: Source | None = None, on_step: OnStep = lambda *_: None
) -> IngestPlan:
    """Look at every file, and prove the labels on a few; nothing is written.

    `source` says what the target's states are, in the place of the model itself. Raises `IngestError` with
    everything for which the files are not what they are said to be, `ConfigError` for what was asked wrongly,
    and `ResumeError` where the dataset has another schema or was made otherwise.
    """
    opened = open_files(asked, source)
    seen = look(
        opened.files,
        opened.target,
        workers,
        all_trained=asked.masks == ALL_TRAINED,
        on_step=lambda done, total: on_step("look", done, total),
    )
    facts = [one for one in seen if isinstance(one, Facts)]
    if not facts:
        raise IngestError("none of the files can be brought in", _first(_refusals(seen)))
    slots = usual(facts)
    alike = [one for one in facts if one.slots == slots]
    labels, said_by = labels_of(asked.labels, opened.files.claimed, opened.beside.card)

    def proof(some: Sequence[Facts]) -> Proof:
        return _proof(asked, opened.files, some, source, lambda done, total: on_step("prove", done, total))

    if labels is None:
        names = proof(alike).names if asked.proven else None
        flags = {one.last for one in alike}
        last = flags.pop() if len(flags) == 1 else None
        raise IngestError("the slots have no names", [missing_labels(slots, names, last)])
    wrong = label_problems(labels, said_by, slots, opened.target)
    _raise_errors("the labels do not fit the files", wrong or [*flags_problems(labels, said_by, alike)])
    schema = Schema.declare(opened.target, labels, cast(DType, slots[0].dtype))
    provenance = provenance_of(schema, proven=asked.proven)
    have = held(opened.door, opened.reference.dataset, schema, provenance)
    snapshot = have.dataset.snapshot(have.version.number) if have.dataset and have.version else None
    looked = sorted_out(seen, slots, snapshot, lambda one: flag_problem(labels[-1], said_by, one))
    alike = [one for one in alike if flag_problem(labels[-1], said_by, one) is None]
    if looked.fresh:
        _check_rights(opened)
    proven = proof(to_prove(looked.fresh, alike)) if asked.proven and alike else None
    if proven is not None:
        found = list(proof_problems(proven, labels, said_by))
        _raise_errors("the files are not what they are said to be: nothing is written", found)
    return IngestPlan(
        asked=asked,
        opened=opened,
        slots=slots,
        labels=labels,
        said_by=said_by,
        schema=schema,
        provenance=provenance,
        looked=looked,
        held=have,
        proof=proven,
        notes=(*opened.files.problems, *_beside_notes(opened.beside, facts), *_mask_notes(facts)),
    )


def _check_rights(opened: Opened) -> None:
    """Raise `SpaceError` where nothing can be written: a proof takes minutes."""
    if problems := opened.door.write_problems(opened.reference.dataset):
        raise SpaceError("the dataset cannot be written", problems)


def open_files(asked: Asked, source: Source | None) -> Opened:
    """Find the samples and what lies beside them; no state is read.

    Raises `IngestError` with all that is wrong with the files as a whole, and `ConfigError` where there is
    nothing that could be looked at.
    """
    file_format = format_of(asked.format)
    reference = _reference(asked)
    beside = read_beside(asked.files)
    target = _target(asked, beside, source)
    options = ImportOptions(
        target=target,
        masks=asked.masks,
        dequantise=asked.dequantise,
        padding=asked.padding,
        endings=_endings(asked),
        whole=frozenset(beside.conversations),
        first_token=asked.first_token,
    )
    _check_there(asked)
    try:
        files = file_format.open(asked.files, options)
    except ForeignFileError as error:
        raise ConfigError(error.headline, error.problems) from error
    errors = [problem for problem in files.problems if problem.severity == "error"]
    if errors and all(problem.kind in _NOTHING_TO_TRY for problem in errors):
        raise ConfigError("there is nothing to bring in", _first(errors))
    _raise_errors("these files cannot be brought in", files.problems)
    return Opened(reference, open_door(reference.root), files, target, beside)


def _check_there(asked: Asked) -> None:
    """Raise `ConfigError` with every file or folder that was named and is not there."""
    named = [("files", path) for path in asked.files]
    named += [("--masks", asked.masks)] if isinstance(asked.masks, Path) else []
    problems = [
        Problem(
            where=f"{option}: {path}",
            kind="missing",
            message="expected a file or a folder, got nothing of this name",
        )
        for option, path in named
        if not path.exists()
    ]
    if problems:
        raise ConfigError("there is nothing to bring in", problems)


def _reference(asked: Asked) -> DatasetReference:
    reference = parse_reference(asked.dataset)
    if reference.version is not None:
        message = (
            f"expected ROOT/DATASET, got version {reference.version}: what is added becomes the next one"
        )
        raise ConfigError("no such place", [Problem(where="--dataset", kind="dataset", message=message)])
    return reference


def _target(asked: Asked, beside: Beside, source: Source | None) -> Target:
    """Return the target's identity: of the model, or unproven of the card."""
    card = beside.card.target if beside.card else None
    if source is not None:
        target = source.target
    elif asked.target is not None:
        target = read_target(settings_of(asked))
    elif card is not None and not asked.proven:
        return card
    else:
        need = "the model whose states these are" if asked.proven else "the model, or a card beside the files"
        repair = "give --target MODEL" + (
            ", or --unproven where a card lies beside the files" if asked.proven else ""
        )
        problem = Problem(
            where="--target", kind="target", message=f"expected {need}, got none", repair=repair
        )
        raise ConfigError("the target is not known", [problem])
    if card is not None and card.weights.method == target.weights.method:
        differences = identity_differences("target", target.identity(), card.identity())
        if differences:
            raise IngestError("the card beside the files is of another target than was given", differences)
    return target


def settings_of(asked: Asked, dtype: DType = "bfloat16") -> EngineSettings:
    """Return how the target is opened."""
    return EngineSettings.model_validate({"model": asked.target, "dtype": dtype, "device": asked.device})


def proving_settings(asked: Asked, held: DType) -> EngineSettings:
    """Return how the target is opened to prove states that were computed in `held`.

    A CPU computes in float16 by taking every number apart: float32 takes a tenth of the time there.
    """
    settings = settings_of(asked, held)
    if held == "float16" and place_of_work(settings) == "cpu":
        return settings_of(asked, "float32")
    return settings


def _endings(asked: Asked) -> tuple[int, ...]:
    return () if asked.target is None else ending_token_ids(settings_of(asked))


def _proof(
    asked: Asked,
    files: OpenFiles,
    facts: Sequence[Facts],
    source: Source | None,
    on_step: Callable[[int, int], None],
) -> Proof:
    beginnings = Beginnings(files, facts, asked.prove)
    _raise_errors("the files changed while they were looked at", beginnings.problems)
    if source is not None:
        return prove(beginnings, facts[0].slots, source, on_step)
    model = ModelSource.of(proving_settings(asked, beginnings.dtype))
    try:
        return prove(beginnings, facts[0].slots, model, on_step)
    finally:
        model.engine.close()


def provenance_of(schema: Schema, *, proven: bool) -> Provenance:
    """Return what decides the content of samples that were brought in: whether their names were proven.

    A dataset has either proven samples or unproven ones; which files they are of stands in the run's record.
    """
    return Provenance(
        engine=ENGINE,
        engine_version="proven" if proven else "unproven",
        dtype=schema.tensors[0].dtype,
        mode="capture",
        max_tokens=NO_LIMIT,
        on_too_long="quarantine",
        min_trained_tokens=0,
    )


def _raise_errors(headline: str, problems: Sequence[Problem]) -> None:
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise IngestError(headline, _first(errors))


def _refusals(seen: Sequence[Facts | Refusal]) -> list[Problem]:
    """Return what is wrong with the files, what is the same of many of them once."""
    alike: dict[tuple[str, str], list[Problem]] = {}
    for one in (one for one in seen if isinstance(one, Refusal)):
        for problem in one.problems:
            by_path = problem.where.startswith(str(one.listed.path))
            where = problem.where if by_path else f"{one.listed.name}: {problem.where}"
            named = problem.model_copy(update={"where": where})
            alike.setdefault((problem.kind, problem.message), []).append(named)
    return [
        first.model_copy(update={"where": f"{first.where} and {len(others)} more" if others else first.where})
        for first, *others in alike.values()
    ]


def _first(problems: Sequence[Problem]) -> list[Problem]:
    """Return the first of many problems, and how many more there are."""
    if len(problems) <= _TOLD:
        return list(problems)
    message = f"and {len(problems) - _TOLD:,} more problems of this kind"
    return [*problems[:_TOLD], Problem(where="files", kind="more", message=message)]


def _mask_notes(facts: Sequence[Facts]) -> Iterator[Problem]:
    return mask_notes([Masked(one.listed.name, one.n_trained, one.begins) for one in facts])


def _beside_notes(beside: Beside, facts: Sequence[Facts]) -> list[Problem]:
    """Return a note of samples that the list of rows beside the files does not name, and of those missing."""
    if not beside.conversations:
        return []
    notes = []
    there = {one.sample_id for one in facts}
    if strangers := [one.listed.name for one in facts if one.sample_id not in beside.conversations]:
        shown = ", ".join(strangers[:4])
        message = f"expected the samples that the export's list names, got {len(strangers)} others: {shown}"
        notes.append(Problem(where=ROWS, kind="rows", message=message, severity="note"))
    if gone := len(beside.conversations.keys() - there):
        message = (
            f"expected {len(beside.conversations)} samples as the export's list names, got none of {gone}"
        )
        notes.append(Problem(where=ROWS, kind="rows", message=message, severity="note"))
    return notes
