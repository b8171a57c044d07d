"""The wiring that a trainer is asked to take on a dataset, judged before a byte of it is written or read.

Who writes a trainer's files and who lets it read live ask the same question here, so both have one answer.
"""

from collections.abc import Sequence
from typing import NamedTuple

from schemas.boundary import place_of
from schemas.card import Card, DatasetVersion
from schemas.consumers.declared import at_version
from schemas.consumers.resolution import Shape
from schemas.consumers.resolve import resolve_trainer
from schemas.consumers.write import plain_ids
from schemas.judging import DatasetFacts, Report, judge, named
from schemas.problem import Problem
from schemas.reference import parse_reference
from schemas.sides import Sides
from schemas.target import Target
from schemas.wiring import Wiring, slot_problems


class Trained(NamedTuple):
    """What a trainer takes of a dataset: no wiring where there are problems."""

    wiring: Wiring | None
    report: Report
    problems: tuple[Problem, ...]


def tensor_problems(target: Target, names: Sequence[str]) -> list[Problem]:
    """Return what is wrong with tensors' names on a target."""
    places = [place_of(name, target.n_layers) for name in names]
    return [place for place in places if isinstance(place, Problem)]


def trainer_wiring(
    facts: DatasetFacts, trainer: str, fc: Sequence[str] | None, target: str | None
) -> Trained:
    """Return the wiring of a trainer, `NAME==VERSION`, on a dataset, and what the check of it found.

    Without `fc` and `target` it is what the trainer takes by default. The names are ones of the dataset's
    target: `tensor_problems` says no first.
    """
    known = facts.schema.target
    shape = Shape(model_type=known.model_type, n_layers=known.n_layers)
    places = [place_of(name, known.n_layers) for name in fc or ()]
    boundaries = tuple(place.boundary for place in places if not isinstance(place, Problem))
    name, version = named(trainer)
    ids = plain_ids(name, version, shape, boundaries) if boundaries else ()
    taken = resolve_trainer(name, version, shape, ids=ids or None).wiring
    if taken is not None and not ids and at_version(name, version).consumer.ids_hold_target:
        # By its ids: without any, all that a dataset keeps would count as the list that it reads.
        ids = plain_ids(name, version, shape, taken.boundaries)
    sides = Sides(dataset=facts, trainer=trainer, trainer_ids=ids or None)
    if taken is not None and target is not None and taken.target is not None:
        role = taken.target.model_copy(update={"tensor": target})
        sides = Sides(dataset=facts, trainer_wiring=taken.model_copy(update={"target": role}))
    report = judge(sides, shape)
    problems = [_hinted(problem) if fc is None else problem for problem in report.errors]
    if taken is not None and fc is not None:
        repair = f"give --fc {','.join(taken.fc)}"
        problems += slot_problems(fc, taken.fc, "as --fc says", f"all that {taken.title} can take", repair)
    wiring = report.trained.wiring if report.trained else None
    return Trained(None if problems else wiring, report, tuple(problems))


def _hinted(problem: Problem) -> Problem:
    """Say of an input that is but a trainer's default how another one is named here: not by its ids."""
    if problem.role != "fc" or problem.kind != "missing":
        return problem
    repair = (problem.repair or "").partition("; if it is given other layer ids")[0]
    return problem.model_copy(
        update={"repair": f"{repair}; or say what the draft is to take with --fc NAME,NAME,..."}
    )


def trained_card(report: Report) -> Card | None:
    """Return the card of what was compared; `None` without a dataset or a trainer, or where they differ."""
    if report.dataset is None or report.trained is None or report.trained.wiring is None or report.errors:
        return None
    schema, version = report.dataset.schema, report.dataset.version
    made_of = DatasetVersion(
        dataset_id=version.dataset_id,
        name=parse_reference(report.dataset.reference).dataset,
        version=version.number,
        schema_fingerprint=schema.fingerprint,
    )
    wiring = report.trained.wiring
    return Card(target=schema.target, wiring=wiring, contract=report.contract, dataset=made_of)
