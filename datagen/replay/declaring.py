"""What somebody says of a draft: what its trainer took, and what a server will feed it, as inputs to try.

Where neither a trainer nor a card is named, the card beside the weights is taken, and without one what the
draft's own config asks a server for; which of them it was is always said.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import get_args

from datagen.errors import ConfigError
from datagen.replay.candidates import TRUE_TARGET, Candidate, Change, Inputs
from datagen.replay.checkpoint import DraftCheckpoint
from datagen.wiring.cards import read_card
from datagen.wiring.inputs import read_wiring
from schemas.card import CARD_FILE
from schemas.consumers.declared import names
from schemas.consumers.resolution import Resolution, Shape, Way
from schemas.consumers.resolve import resolve_server
from schemas.contract.draft import FlagName
from schemas.contract.servers import reading_of
from schemas.judging import DatasetFacts, Report, judge, named
from schemas.problem import Problem
from schemas.sides import Sides
from schemas.wiring import ConsumerKind

NORMS: tuple[FlagName, ...] = get_args(FlagName)


@dataclass(frozen=True)
class Said:
    """How a person says what is declared; all may be left out."""

    trainer: str | None = None
    trainer_ids: tuple[int, ...] | None = None
    trainer_wiring: Path | None = None
    card: Path | None = None
    server: str | None = None
    server_wiring: Path | None = None


@dataclass(frozen=True)
class Declaration:
    """What is declared of a draft, who says so, and what is wrong with it before anything is run."""

    trained: Candidate | None
    trained_by: str
    served: Inputs | None
    served_by: str
    problems: tuple[Problem, ...]
    """Of what is said of the training."""
    notes: tuple[str, ...]
    served_problems: tuple[Problem, ...] = ()
    """Of what is said of the server."""


def declare(said: Said, dataset: DatasetFacts, folder: Path, checkpoint: DraftCheckpoint) -> Declaration:
    """Resolve what is said of the draft in `folder`, for the dataset's target.

    Raises `ConfigError` for a name that is not known, and what reading a card or a wiring file raises; a
    wiring with another number of tensors than the draft takes is a problem.
    """
    refuse_unknown(said)
    shape = Shape(model_type=dataset.schema.target.model_type, n_layers=dataset.schema.target.n_layers)
    report = _report(said, dataset, folder, checkpoint, shape)
    trained, trained_by, notes = _trained(report, said, checkpoint, shape)
    served, served_by = None, ""
    if report.served is not None and report.served.wiring is not None:
        # Of a server of one's own only its tensors are known: it is taken to run the draft as configured.
        lost, assumed = _lost(said.server, checkpoint) if said.server else ((), [])
        served = Inputs(report.served.wiring.fc, changes=lost)
        served_by = report.served.wiring.title
        notes += assumed
    resolutions = [one for one in (report.trained, report.served) if one is not None]
    problems = _unfit(trained.inputs if trained else None, trained_by, checkpoint.n_slots)
    served_problems = _unfit(served, served_by, checkpoint.n_slots)
    return Declaration(
        trained if trained and len(trained.inputs.fc) == checkpoint.n_slots else None,
        trained_by,
        served if served and len(served.fc) == checkpoint.n_slots else None,
        served_by,
        (*_errors(report.trained), *problems),
        tuple(notes) + tuple(text for one in resolutions for text in one.assumptions),
        (*_errors(report.served), *served_problems),
    )


def refuse_unknown(said: Said) -> None:
    """Raise `ConfigError` where a trainer or server, or its version, is none that is declared.

    A mistyped name says nothing of a draft, so nothing is run for it.
    """
    problems: list[Problem] = []
    given: tuple[tuple[ConsumerKind, str | None, Path | None], ...] = (
        ("trainer", said.trainer, said.trainer_wiring),
        ("server", said.server, said.server_wiring),
    )
    for kind, text, own in given:
        if text is None or own is not None:
            continue
        way = Way(*named(text))
        if way.find(kind) is None:
            near = get_close_matches(way.name, names(kind), n=1, cutoff=0.5)
            problems += [
                problem.model_copy(update={"repair": f"did you mean {near[0]}? or {problem.repair}"})
                if near and problem.kind == "consumer" and way.name not in names()
                else problem
                for problem in way.end().problems
            ]
    if problems:
        raise ConfigError("what is said to train or to serve the draft is not known", problems)


def _errors(resolution: Resolution | None) -> list[Problem]:
    return [one for one in resolution.problems if one.severity == "error"] if resolution else []


def _report(
    said: Said, dataset: DatasetFacts, folder: Path, checkpoint: DraftCheckpoint, shape: Shape
) -> Report:
    card = said.card
    if card is None and not (said.trainer or said.trainer_wiring) and (folder / CARD_FILE).is_file():
        card = folder / CARD_FILE
    sides = Sides(
        dataset=dataset,
        trainer=said.trainer,
        trainer_ids=said.trainer_ids,
        trainer_wiring=read_wiring(said.trainer_wiring),
        card=read_card(card) if card is not None else None,
        server=said.server,
        server_wiring=read_wiring(said.server_wiring),
        draft_config=checkpoint.config,
    )
    return judge(sides, shape)


def _trained(
    report: Report, said: Said, checkpoint: DraftCheckpoint, shape: Shape
) -> tuple[Candidate | None, str, list[str]]:
    """Return what the draft is said to be trained on, who says so, and what had to be assumed."""
    if report.trained is not None:
        wiring = report.trained.wiring
        by = f"the card ({report.trained.consumer})" if report.card and not said.trainer else ""
        if wiring is None:
            return None, report.trained.consumer, []
        return Candidate(Inputs(wiring.fc), wiring.target or TRUE_TARGET), by or wiring.title, []
    reader = "vllm" if checkpoint.layout == "speculators" else "sglang"
    resolution: Resolution = resolve_server(reader, None, shape, checkpoint.config)
    if resolution.wiring is None or resolution.by_default:
        note = "nobody says what this draft was trained on: name --trainer, --card or a server"
        return None, "", [note]
    note = (
        "no trainer and no card is named: what the draft's config asks a server for is taken for what it "
        f"was trained on, as {reader} reads it"
    )
    return Candidate(Inputs(resolution.wiring.fc), TRUE_TARGET), "the draft's config", [note]


def _lost(server: str, checkpoint: DraftCheckpoint) -> tuple[tuple[Change, ...], list[str]]:
    """Return which norms a server will run otherwise than the config says, and what had to be assumed."""
    reading, assumed = reading_of(checkpoint.contract, *named(server))
    notes = [str(problem) for problem in assumed]
    if reading is None:
        return (), notes
    if checkpoint.layout == "speculators" and not reading.holds(reading.server.speculators):
        notes.append(f"{reading.title} does not read speculators' layout: taken as if it were written plain")
        contract = checkpoint.contract.model_copy(update={"layout": "plain"})
        return _differing(checkpoint, {flag: reading.runs(flag, contract) for flag in NORMS}), notes
    return _differing(checkpoint, {flag: reading.runs(flag, checkpoint.contract) for flag in NORMS}), notes


def _differing(checkpoint: DraftCheckpoint, runs: dict[FlagName, bool]) -> tuple[Change, ...]:
    return tuple(Change(flag, on) for flag, on in runs.items() if on != getattr(checkpoint.flags, flag))


def _unfit(inputs: Inputs | None, by: str, n_slots: int) -> list[Problem]:
    if inputs is None or len(inputs.fc) == n_slots:
        return []
    return [
        Problem(
            where="fc",
            kind="slots",
            message=f"expected {n_slots} tensors, which the draft's fc takes, got {len(inputs.fc)} "
            f"({by}: {', '.join(inputs.fc)})",
            repair="name the wiring that this draft is meant to have",
        )
    ]
