"""What is known of a dataset, a trainer, a server and a draft, compared pair by pair.

Values in, problems out: `strata check` reads the values from files, `POST /v1/check` from a request;
`schemas.check`, `schemas.consumers` and `schemas.contract` judge each pair.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.boundary import FINAL_NORMED
from schemas.card import Card
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
from schemas.dataset_facts import DatasetFacts as DatasetFacts
from schemas.problem import Problem
from schemas.sides import Sides, WiringFile
from schemas.target import Target
from schemas.wiring import ConsumerKind, Wiring


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


def judge(sides: Sides, shape: Shape) -> Report:
    """Compare what is given, for a target of that shape; `side_problems` says whether there is enough."""
    report = Report(dataset=sides.dataset, card=sides.card)
    draft = sides.draft_config or {}
    report.trained = _trained(sides, report, shape, draft)
    if sides.server:
        name, version = named(sides.server)
        report.served = resolve_server(name, version, shape, draft)
        if sides.server_args is not None:
            release = version or _newest(name)
            report.flags = effective_flags(name, release, sides.server_args, model_type=shape.model_type)
    elif sides.server_wiring is not None:
        report.served = _of_kind(
            "server", read_user_wiring(sides.server_wiring.text, shape, sides.server_wiring.name)
        )
    report.problems = [
        *_of_resolutions(sides, report),
        *_targets(report, sides.target),
        *_pairs(sides, report, shape, draft),
        *(report.flags.problems if report.flags else ()),
    ]
    if sides.draft_config is not None:
        report.contract, found = read_contract(draft)
        report.problems += [*found, *_contract(sides, report, report.contract)]
    return report


def as_data(report: Report) -> dict[str, object]:
    """Return the report as JSON types."""
    return {
        "ok": not report.errors,
        "dataset": report.dataset.reference if report.dataset else None,
        "dataset_version": report.dataset.version.number if report.dataset else None,
        "schema_fingerprint": report.dataset.schema.fingerprint if report.dataset else None,
        "trainer": report.trained.model_dump(mode="json") if report.trained else None,
        "server": report.served.model_dump(mode="json") if report.served else None,
        "server_flags": report.flags.model_dump(mode="json") if report.flags else None,
        "problems": [problem.model_dump(mode="json") for problem in report.problems],
    }


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


def _trained(sides: Sides, report: Report, shape: Shape, draft: Mapping[str, Any]) -> Resolution | None:
    if report.card is not None and not sides.has_trainer:
        wiring = report.card.wiring
        return Resolution(
            consumer=wiring.consumer,
            version=wiring.version,
            wiring=wiring,
            steps=(f"the card says {', '.join(wiring.fc)}",),
        )
    if isinstance(sides.trainer_wiring, WiringFile):
        own = read_user_wiring(sides.trainer_wiring.text, shape, sides.trainer_wiring.name)
        return _of_kind("trainer", own)
    if sides.trainer_wiring is not None:
        wiring = sides.trainer_wiring
        said = f"the wiring says {', '.join(wiring.fc)}"
        resolution = Resolution(
            consumer=wiring.consumer, version=wiring.version, wiring=wiring, steps=(said,)
        )
        return _of_kind("trainer", resolution)
    if sides.trainer is None:
        return None
    name, version = named(sides.trainer)
    listed = _listed(name, version, report) if sides.trainer_ids is None else None
    return resolve_trainer(
        name,
        version,
        shape,
        tensors=listed,
        ids=sides.trainer_ids,
        engine=sides.trainer_engine,
        draft_config=draft if sides.draft_config is not None else None,
    )


def _of_kind(wanted: ConsumerKind, resolution: Resolution) -> Resolution:
    """Refuse the wiring of a server where a trainer's is asked for, which has a target, and the reverse."""
    wiring = resolution.wiring
    if wiring is None or wiring.kind == wanted:
        return resolution
    target = " and the target that it trains on" if wanted == "trainer" else ", without a target,"
    problem = Problem(
        where="kind",
        kind="consumer",
        message=f"expected a {wanted}, got {wiring.title}, a {wiring.kind}",
        repair=f'write kind = "{wanted}"{target} in the wiring file',
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


def _reads_draft(sides: Sides) -> bool:
    """Say whether the trainer takes its layer ids from the draft's config."""
    try:
        return bool(sides.trainer and at_version(*named(sides.trainer)).consumer.reads)
    except (KeyError, ValueError):
        return False  # told when it is resolved


def _of_resolutions(sides: Sides, report: Report) -> Iterator[Problem]:
    for who, resolution in (("trainer", report.trained), ("server", report.served)):
        if resolution is None:
            continue
        for problem in resolution.problems:
            where = problem.where if problem.where.startswith(who) else f"{who}: {problem.where}"
            by_name = who == "trainer" and sides.trainer is not None
            unsaid = by_name and problem.where == "ids" and sides.trainer_ids is None
            hint = (
                f"; to check ids that it is given elsewhere, add {sides.word('trainer_ids')}"
                if unsaid
                else ""
            )
            yield problem.model_copy(update={"where": where, "repair": (problem.repair or "") + hint})
        for assumption in resolution.assumptions:
            yield Problem(where=who, kind="assumption", severity="note", message=assumption)


def _targets(report: Report, target: Target | None) -> Iterator[Problem]:
    known = report.dataset.schema.target if report.dataset else report.card.target if report.card else None
    if target is not None and known is not None:
        yield from target_shape(known, target)
    if report.card is not None and report.dataset is not None:
        yield from card_dataset(report.card, report.dataset.schema)


def _pairs(sides: Sides, report: Report, shape: Shape, draft: Mapping[str, Any]) -> Iterator[Problem]:
    trained = report.trained.wiring if report.trained else None
    served = report.served.wiring if report.served else None
    schema = report.dataset.schema if report.dataset else None
    norm = report.dataset.final_norm if report.dataset else None
    reads_draft = sides.draft_config is not None and _reads_draft(sides)
    if trained is not None:
        for problem in trainer_alone(trained, _intention(sides, report, shape, bool(draft)), schema, norm):
            yield problem if reads_draft else _hinted(problem, sides, report)
        yield from mask_notes(trained)
    if report.card is not None and trained is not None:
        yield from card_trainer(report.card, trained)
    if schema is not None and trained is not None:
        for problem in dataset_trainer(schema, trained, raw=sides.raw, norm=norm):
            yield problem if reads_draft else _hinted(problem, sides, report)
    if schema is not None and served is not None and trained is None:
        yield from dataset_server(schema, served, norm=norm)
    weights = report.card.wiring if report.card is not None else trained
    if weights is not None and served is not None:
        yield from trainer_server(weights, served, _how_to_serve(sides, weights, shape))
    elif weights is not None and sides.server is not None:
        yield Problem(
            where="served fc",
            kind="not_compared",
            severity="note",
            message=f"what {sides.server.strip()[:80]} will feed is not known, and not compared with "
            f"{', '.join(weights.fc)}, which the weights were trained on",
            repair=_how_to_serve(sides, weights, shape),
            role="fc",
            expected=", ".join(weights.fc),
        )


def _hinted(problem: Problem, sides: Sides, report: Report) -> Problem:
    """Add to the repair of an input that is but a trainer's default how to say what it is really given."""
    by_default = sides.trainer is not None and sides.trainer_ids is None
    if not by_default or problem.role != "fc" or _listed(*named(sides.trainer or ""), report):
        return problem
    hint = f"; if it is given other layer ids than its default, say them with {sides.word('trainer_ids')}"
    return problem.model_copy(update={"repair": (problem.repair or "") + hint})


def _how_to_serve(sides: Sides, trained: Wiring, shape: Shape) -> str | None:
    """Return what to write so that the server feeds what was trained on, or why it cannot."""
    if sides.server_wiring is not None:
        return f"have the server of {sides.server_wiring.name} feed {', '.join(trained.fc)}, in this order"
    if sides.server is None or FINAL_NORMED in trained.fc or trained.n_layers != shape.n_layers:
        return None
    written = what_to_write(*named(sides.server), shape, trained.boundaries)
    title, wanted = sides.server.strip(), ", ".join(trained.fc)
    errors = [problem for problem in written.problems if problem.severity == "error"]
    if errors:
        return f"{title} cannot feed {wanted} ({errors[0].where}: {errors[0].message})"
    snippet = f"write {written.snippet} in {written.where}" if written.snippet else written.where
    return f"{snippet}, and {title} feeds {wanted}"


def _intention(sides: Sides, report: Report, shape: Shape, has_draft: bool) -> Intention | None:
    """Return what the draft is meant to be fed: as its config says, else as the trainer does by default.

    A card says it itself, and is compared with both.
    """
    if report.card is not None:
        return None
    served = report.served if sides.server is not None else None
    if has_draft and served is not None and served.wiring is not None and not served.by_default:
        by = f"the draft's config, as {served.wiring.title} reads it"
        return Intention(fc=served.wiring.fc, by=by)
    if sides.trainer is None or sides.trainer_ids is not None:
        return None
    if _reads_draft(sides) and has_draft:
        return None
    name, version = named(sides.trainer)
    usual: Wiring | None = resolve_trainer(name, version, shape, engine=sides.trainer_engine).wiring
    if usual is None:
        return None
    return Intention(
        fc=usual.fc, by=f"{usual.title}'s own default for {shape.n_layers} layers", certain=False
    )


def _contract(sides: Sides, report: Report, contract: DraftContract) -> Iterator[Problem]:
    if report.card is not None and report.card.contract is not None:
        yield from differences(report.card.contract, contract)
    if sides.server is None:
        return
    yield from sides.unread
    # Of a checkpoint that cannot be read at all, only the config is judged.
    tensors = None if sides.unread and not sides.draft_tensors else sides.draft_tensors
    name, version = named(sides.server)
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
