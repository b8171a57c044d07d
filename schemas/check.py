"""Do a dataset, a trainer and a server mean the same tensors? Any two of the three can be compared alone.

Pure: what was found out about each comes in, every problem goes out: role, slot, and the two tensors' names.
"""

from collections.abc import Iterator

from schemas.boundary import FINAL, FINAL_NORMED
from schemas.card import Card
from schemas.problem import Problem
from schemas.provenance import identity_differences
from schemas.record import Record
from schemas.schema import Schema
from schemas.target import Target
from schemas.wiring import Wiring, difference_notes, slot_problems, target_problems


class Intention(Record):
    """What a draft is meant to be fed, and who says so (its config, a trainer's default)."""

    fc: tuple[str, ...]
    by: str
    certain: bool = True
    """Whether a person wrote it down; a default that nobody chose makes a note, not an error."""


def dataset_trainer(schema: Schema, trainer: Wiring) -> Iterator[Problem]:
    """Yield what a trainer would take that a dataset does not have."""
    yield from _depth(schema.target, trainer)
    slots = [(f"fc[{slot}]", name) for slot, name in enumerate(trainer.fc)]
    if trainer.target is not None:
        slots.append(("target", trainer.target.tensor))
    for where, name in slots:
        if name not in schema.names:
            yield Problem(
                where=where,
                kind="missing",
                message=f"expected {name} for {trainer.title}, got a dataset of {', '.join(schema.names)}",
                repair=_how_to_get(name, schema),
            )
    if trainer.token_shift == "producer":
        yield Problem(
            where="token_shift",
            kind="token_shift",
            message=f"expected tokens that are shifted already ({trainer.title} does not shift), "
            "got samples as they are: token i stands with state i",
            repair="shift in the export, or the draft learns to repeat the token it is given",
        )


def dataset_server(schema: Schema, server: Wiring) -> Iterator[Problem]:
    """Yield what a server will feed that a dataset lacks: no weights trained on it can expect that."""
    yield from _depth(schema.target, server)
    for slot, name in enumerate(server.fc):
        if name not in schema.names:
            yield Problem(
                where=f"fc[{slot}]",
                kind="missing",
                message=f"expected a tensor of the dataset ({', '.join(schema.names)}), "
                f"got {name}, which {server.title} will feed",
                repair=f"{_how_to_get(name, schema)}, or write other layer ids in the draft's config",
            )


def trainer_alone(trainer: Wiring, intended: Intention | None = None) -> Iterator[Problem]:
    """Yield what is wrong with a trainer's wiring by itself, and against what the draft is meant to take."""
    yield from target_problems(trainer)
    if intended is None:
        return
    repair = f"feed {trainer.title} {', '.join(intended.fc)} as the input, in this order"
    if trainer.target is not None:
        repair += f", and {FINAL if trainer.target.applies_norm else FINAL_NORMED} as the target"
    severity = "error" if intended.certain else "note"
    for problem in slot_problems(intended.fc, trainer.fc, intended.by, f"what {trainer.title} takes"):
        yield problem.model_copy(update={"severity": severity, "repair": repair})


def trainer_server(trainer: Wiring, server: Wiring) -> Iterator[Problem]:
    """Yield every slot in which weights were trained on another tensor than they will be served."""
    by, served = f"the weights were trained on it by {trainer.title}", f"what {server.title} will feed"
    repair = (
        f"write layer ids in the draft's config so that {server.title} feeds {', '.join(trainer.fc)} "
        f"(`strata wire` says which), or train on {', '.join(server.fc)}"
    )
    for problem in slot_problems(trainer.fc, server.fc, by, served):
        yield problem.model_copy(update={"where": f"served {problem.where}", "repair": repair})
    yield from difference_notes(trainer, server)


def card_dataset(card: Card, schema: Schema) -> Iterator[Problem]:
    """Yield where a card speaks of another target than a dataset's: two models may share depth and width."""
    yield from identity_differences("target", schema.target.identity(), card.target.identity())
    if card.dataset is not None and card.dataset.schema_fingerprint != schema.fingerprint:
        yield Problem(
            where="dataset",
            kind="schema",
            severity="note",
            message=f"the card was written for schema {card.dataset.schema_fingerprint[:16]}, "
            f"this dataset has {schema.fingerprint[:16]}: the tensors are compared by name",
        )


def mask_notes(trainer: Wiring) -> Iterator[Problem]:
    """Yield what a trainer's mask alignment means, for samples whose mask stands with their tokens."""
    if trainer.mask_alignment is None:
        return
    next_ = trainer.mask_alignment == "next"
    yield Problem(
        where="mask_alignment",
        kind="mask_alignment",
        severity="note",
        message=(
            f"{trainer.title} masks pair i (state i with token i+1, predicting token i+2) by "
            + (
                "mask[i+1]: of each answer the first token"
                if next_
                else "mask[i]: of each answer the first two tokens"
            )
            + (
                " is not learnt, and one behind its end is"
                if next_
                else " are not learnt, and two behind its end are"
            )
        ),
    )


def target_shape(target: Target, given: Target) -> Iterator[Problem]:
    """Yield where a dataset's target is not the model whose config was given (only its shape is known)."""
    for what in ("n_layers", "hidden_size", "vocab_size", "model_type"):
        mine, theirs = getattr(target, what), getattr(given, what)
        if mine != theirs:
            yield Problem(
                where=f"target.{what}",
                kind="target",
                message=f"expected {mine} as in the dataset, got {theirs} in the target's config",
            )


def _depth(target: Target, wiring: Wiring) -> Iterator[Problem]:
    if target.n_layers != wiring.n_layers:
        yield Problem(
            where="target.n_layers",
            kind="target",
            message=f"expected {target.n_layers} layers as in the dataset, got {wiring.n_layers} "
            f"for {wiring.title}",
        )


def _how_to_get(name: str, schema: Schema) -> str:
    if name == FINAL_NORMED and FINAL in schema.names:
        return "the dataset has final: an export runs the target's own norm over it"
    return f"add {name} to tensors.names and make a dataset with it"
