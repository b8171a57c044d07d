"""Gathers what is known of a dataset, a trainer, a server and a draft, and compares each pair that is there.

Reading is here, judging in `schemas.check`, `schemas.consumers` and `schemas.contract`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datagen.cards import read_card
from datagen.draft_files import read_safetensors_names
from datagen.errors import ConfigError
from datagen.wiring_inputs import DatasetFacts, read_dataset, read_json, read_text, shape_of
from schemas.boundary import FINAL_NORMED
from schemas.card import Card, DatasetVersion
from schemas.check import (
    Intention,
    card_dataset,
    card_trainer,
    dataset_server,
    dataset_trainer,
    mask_notes,
    target_shape,
    trainer_alone,
    trainer_server,
)
from schemas.consumers.declared import at_version
from schemas.consumers.own import read_user_wiring
from schemas.consumers.resolution import Resolution, Shape
from schemas.consumers.resolve import resolve_server, resolve_trainer
from schemas.consumers.serving import ServingFlags, effective_flags
from schemas.consumers.write import what_to_write
from schemas.contract import DraftContract, contract_problems, differences, read_contract
from schemas.problem import Problem
from schemas.reference import parse_reference
from schemas.target import Target
from schemas.wiring import Wiring


@dataclass(frozen=True)
class Asked:
    """What a check is asked about; at least two of dataset, trainer (or wiring file), card and server.

    A card stands in for a trainer; beside one it says what that trainer is meant to take.
    """

    dataset: str | None = None
    trainer: str | None = None
    trainer_ids: tuple[int, ...] | None = None
    """Layer ids that the trainer is given, in its own numbers, in place of its default."""
    trainer_engine: str | None = None
    """What the trainer captures with (`sglang==0.5.23`), where that is not the release it comes with."""
    trainer_wiring: Path | None = None
    card: Path | None = None
    server: str | None = None
    draft_config: Path | None = None
    target_config: Path | None = None
    server_args: str | None = None
    raw: bool = False
    """Whether the trainer reads samples as they are stored: no export, and not the client, between them."""


@dataclass
class Report:
    """What was found out, and every problem."""

    dataset: DatasetFacts | None = None
    card: Card | None = None
    trained: Resolution | None = None
    served: Resolution | None = None
    flags: ServingFlags | None = None
    contract: DraftContract | None = None
    problems: list[Problem] = field(default_factory=list)

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def notes(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "note"]


def check(asked: Asked) -> Report:
    """Compare what is given.

    Raises `StrataError` when something that was named cannot be read, or too little was given to compare.
    """
    _enough(asked)
    report = Report(
        dataset=read_dataset(asked.dataset) if asked.dataset else None,
        card=read_card(asked.card) if asked.card else None,
    )
    draft = read_json(asked.draft_config, "a draft's config.json") if asked.draft_config else {}
    shape, target = shape_of(report.dataset, report.card, asked.target_config)
    report.trained = _trained(asked, report, shape, draft)
    if asked.server:
        name, version = named(asked.server)
        report.served = resolve_server(name, version, shape, draft)
        if asked.server_args is not None:
            release = version or _newest(name)
            report.flags = effective_flags(name, release, asked.server_args, model_type=shape.model_type)
    report.problems = [
        *_of_resolutions(asked, report),
        *_targets(report, target),
        *_pairs(asked, report, shape, draft),
        *(report.flags.problems if report.flags else ()),
    ]
    if asked.draft_config:
        report.contract, found = read_contract(draft)
        report.problems += [*found, *_contract(asked, report, report.contract)]
    return report


def card_of(report: Report) -> Card:
    """Return the card of what was compared: a trainer's wiring on a dataset, and the draft's contract.

    Raises `ConfigError` when there is no dataset or no trainer, or something was wrong with them.
    """
    if report.dataset is None or report.trained is None or report.trained.wiring is None or report.errors:
        got = f"{len(report.errors)} problems" if report.errors else "too little to write one of"
        raise ConfigError(f"expected a dataset and a trainer that mean the same for a card, got {got}")
    schema, version = report.dataset.schema, report.dataset.version
    made_of = DatasetVersion(
        dataset_id=version.dataset_id,
        name=parse_reference(report.dataset.reference).dataset,
        version=version.number,
        schema_fingerprint=schema.fingerprint,
    )
    wiring = report.trained.wiring
    return Card(target=schema.target, wiring=wiring, contract=report.contract, dataset=made_of)


def named(text: str) -> tuple[str, str | None]:
    """Read `NAME[==VERSION]`.

    >>> named("sglang==0.5.23"), named("vllm")
    (('sglang', '0.5.23'), ('vllm', None))
    """
    name, _, version = text.partition("==")
    return name.strip(), version.strip() or None


def _newest(name: str) -> str | None:
    """Return the release that is assumed where none is given, which is told with what the server feeds."""
    try:
        return at_version(name, None).release
    except KeyError:
        return None


def _enough(asked: Asked) -> None:
    problems = []
    if asked.trainer is not None and asked.trainer_wiring is not None:
        message = "expected one of --trainer and --trainer-wiring, got both"
        problems.append(_usage("trainer", message, "drop the one that does not run"))
    for flag, value in (("--trainer-ids", asked.trainer_ids), ("--trainer-engine", asked.trainer_engine)):
        if value is not None and asked.trainer is None:
            problems.append(_usage(flag, "expected --trainer with it, got none", "add --trainer NAME"))
    if asked.raw and not (asked.dataset and has_trainer(asked)):
        message = "expected --dataset and a trainer with it, got one or none"
        problems.append(_usage("--raw", message, "add them: it says how the trainer reads the dataset"))
    sides = bool(asked.dataset) + has_trainer(asked) + bool(asked.card) + bool(asked.server)
    if sides < 2:
        message = f"expected two of --dataset, a trainer, --card and --server, got {sides}"
        repair = "a trainer is --trainer NAME[==VERSION] or --trainer-wiring FILE"
        problems.append(_usage("check", message, repair))
    if asked.server_args is not None and not asked.server:
        problems.append(
            _usage("--server-args", "expected --server with it, got none", "add --server NAME[==VERSION]")
        )
    if problems:
        raise ConfigError("there is nothing to compare", problems)


def has_trainer(asked: Asked) -> bool:
    """Say whether a trainer is asked about, by name or by a wiring file."""
    return asked.trainer is not None or asked.trainer_wiring is not None


def _usage(where: str, message: str, repair: str) -> Problem:
    return Problem(where=where, kind="usage", message=message, repair=repair)


def _trained(asked: Asked, report: Report, shape: Shape, draft: Mapping[str, Any]) -> Resolution | None:
    if report.card is not None and not has_trainer(asked):
        wiring = report.card.wiring
        return Resolution(
            consumer=wiring.consumer,
            version=wiring.version,
            wiring=wiring,
            steps=(f"the card says {', '.join(wiring.fc)}",),
        )
    if asked.trainer_wiring is not None:
        text = read_text(asked.trainer_wiring, "a wiring file")
        return _a_trainers(read_user_wiring(text, shape, asked.trainer_wiring.name))
    if asked.trainer is None:
        return None
    name, version = named(asked.trainer)
    listed = _listed(name, version, report) if asked.trainer_ids is None else None
    return resolve_trainer(
        name,
        version,
        shape,
        tensors=listed,
        ids=asked.trainer_ids,
        engine=asked.trainer_engine,
        draft_config=draft if asked.draft_config else None,
    )


def _a_trainers(resolution: Resolution) -> Resolution:
    """Refuse the wiring of a server where a trainer's is asked for: it has no target to be judged by."""
    wiring = resolution.wiring
    if wiring is None or wiring.kind == "trainer":
        return resolution
    problem = Problem(
        where="kind",
        kind="consumer",
        message=f"expected a trainer, got {wiring.title}, a {wiring.kind}",
        repair='write kind = "trainer" and the target that it trains on in the wiring file',
    )
    return resolution.model_copy(update={"wiring": None, "problems": (*resolution.problems, problem)})


def _listed(name: str, version: str | None, report: Report) -> tuple[str, ...] | None:
    """Return the tensors that a trainer which reads a bare list would find in the dataset, in their order."""
    if report.dataset is None:
        return None
    try:
        reading = at_version(name, version).consumer.reading
    except (KeyError, ValueError):
        return None  # told when it is resolved
    return report.dataset.schema.names if reading == "list" else None


def _reads_draft(asked: Asked) -> bool:
    """Say whether the trainer takes its layer ids from the draft's config."""
    try:
        return bool(asked.trainer and at_version(*named(asked.trainer)).consumer.reads)
    except (KeyError, ValueError):
        return False  # told when it is resolved


def _of_resolutions(asked: Asked, report: Report) -> Iterator[Problem]:
    for who, resolution in (("trainer", report.trained), ("server", report.served)):
        if resolution is None:
            continue
        for problem in resolution.problems:
            where = problem.where if problem.where.startswith(who) else f"{who}: {problem.where}"
            by_name = who == "trainer" and asked.trainer is not None
            unsaid = by_name and problem.where == "ids" and asked.trainer_ids is None
            hint = "; to check ids that it is given elsewhere, add --trainer-ids" if unsaid else ""
            yield problem.model_copy(update={"where": where, "repair": (problem.repair or "") + hint})
        for assumption in resolution.assumptions:
            yield Problem(where=who, kind="assumption", severity="note", message=assumption)


def _targets(report: Report, target: Target | None) -> Iterator[Problem]:
    known = report.dataset.schema.target if report.dataset else report.card.target if report.card else None
    if target is not None and known is not None:
        yield from target_shape(known, target)
    if report.card is not None and report.dataset is not None:
        yield from card_dataset(report.card, report.dataset.schema)


def _pairs(asked: Asked, report: Report, shape: Shape, draft: Mapping[str, Any]) -> Iterator[Problem]:
    trained = report.trained.wiring if report.trained else None
    served = report.served.wiring if report.served else None
    schema = report.dataset.schema if report.dataset else None
    reads_draft = bool(asked.draft_config) and _reads_draft(asked)
    if trained is not None:
        for problem in trainer_alone(trained, _intention(asked, report, shape, bool(draft)), schema):
            yield problem if reads_draft else _hinted(problem, asked, report)
        yield from mask_notes(trained)
    if report.card is not None and trained is not None:
        yield from card_trainer(report.card, trained)
    if schema is not None and trained is not None:
        for problem in dataset_trainer(schema, trained, raw=asked.raw):
            yield problem if reads_draft else _hinted(problem, asked, report)
    if schema is not None and served is not None and trained is None:
        yield from dataset_server(schema, served)
    weights = report.card.wiring if report.card is not None else trained
    if weights is not None and served is not None:
        yield from trainer_server(weights, served, _how_to_serve(asked, weights, shape))
    elif weights is not None and asked.server is not None:
        yield Problem(
            where="served fc",
            kind="not_compared",
            severity="note",
            message=f"what {asked.server.strip()[:80]} will feed is not known, and not compared with "
            f"{', '.join(weights.fc)}, which the weights were trained on",
            repair=_how_to_serve(asked, weights, shape),
            role="fc",
            expected=", ".join(weights.fc),
        )


def _hinted(problem: Problem, asked: Asked, report: Report) -> Problem:
    """Add to the repair of an input that is but a trainer's default how to say what it is really given."""
    by_default = asked.trainer is not None and asked.trainer_ids is None
    if not by_default or problem.role != "fc" or _listed(*named(asked.trainer or ""), report):
        return problem
    hint = "; if it is given other layer ids than its default, say them with --trainer-ids"
    return problem.model_copy(update={"repair": (problem.repair or "") + hint})


def _how_to_serve(asked: Asked, trained: Wiring, shape: Shape) -> str | None:
    """Return what to write so that the server feeds what was trained on, or why it cannot."""
    if asked.server is None or FINAL_NORMED in trained.fc or trained.n_layers != shape.n_layers:
        return None
    written = what_to_write(*named(asked.server), shape, trained.boundaries)
    title, wanted = asked.server.strip(), ", ".join(trained.fc)
    errors = [problem for problem in written.problems if problem.severity == "error"]
    if errors:
        return f"{title} cannot feed {wanted} ({errors[0].where}: {errors[0].message})"
    snippet = f"write {written.snippet} in {written.where}" if written.snippet else written.where
    return f"{snippet}, and {title} feeds {wanted}"


def _intention(asked: Asked, report: Report, shape: Shape, has_draft: bool) -> Intention | None:
    """Return what the draft is meant to be fed: as its config says, else as the trainer does by default.

    A card says it itself, and is compared with both.
    """
    if report.card is not None:
        return None
    served = report.served
    if has_draft and served is not None and served.wiring is not None and not served.by_default:
        by = f"the draft's config, as {served.wiring.title} reads it"
        return Intention(fc=served.wiring.fc, by=by)
    if asked.trainer is None or asked.trainer_ids is not None:
        return None
    if _reads_draft(asked) and has_draft:
        return None
    name, version = named(asked.trainer)
    usual: Wiring | None = resolve_trainer(name, version, shape, engine=asked.trainer_engine).wiring
    if usual is None:
        return None
    return Intention(
        fc=usual.fc, by=f"{usual.title}'s own default for {shape.n_layers} layers", certain=False
    )


def _contract(asked: Asked, report: Report, contract: DraftContract) -> Iterator[Problem]:
    if report.card is not None and report.card.contract is not None:
        yield from differences(report.card.contract, contract)
    if asked.server is None:
        return
    tensors = None
    if asked.draft_config is not None and asked.draft_config.is_dir():
        found, unread = read_safetensors_names(asked.draft_config)
        yield from unread
        # Of a checkpoint that cannot be read at all, only the config is judged.
        tensors = found if found or not unread else None
    name, version = named(asked.server)
    version = version or _newest(name)
    vocabulary = report.dataset.schema.target.vocab_size if report.dataset else None
    yield from contract_problems(
        contract,
        name,
        version,
        tensors,
        vocabulary,
        window=report.flags.window if report.flags else None,
    )
