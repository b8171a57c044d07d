"""Do a dataset, a trainer and a server mean the same tensors? Any two of the three can be compared alone.

Pure: what was found out about each comes in, every problem goes out: role, slot, and the two tensors' names.
"""

from collections.abc import Iterator
from typing import Literal

from schemas.boundary import FINAL, FINAL_NORMED
from schemas.card import Card
from schemas.final_norm import FinalNorm, derivable, derived_note
from schemas.problem import Problem, Severity
from schemas.provenance import identity_differences
from schemas.record import Record
from schemas.schema import Schema
from schemas.target import Target
from schemas.wiring import (
    Wiring,
    difference_notes,
    expected_target,
    shift_differences,
    slot_problems,
    target_differences,
    target_problems,
)


class Intention(Record):
    """What a draft is meant to be fed, and who says so (its config, a trainer's default)."""

    fc: tuple[str, ...]
    by: str
    certain: bool = True
    """Whether a person wrote it down; a default that nobody chose makes a note, not an error."""


def dataset_trainer(
    schema: Schema, trainer: Wiring, *, raw: bool = False, norm: FinalNorm | None = None
) -> Iterator[Problem]:
    """Yield what a trainer would take that a dataset does not have.

    With the target's final `norm`, `final_normed` is made where `final` is stored: a note. A `raw` reader
    has nobody who makes it.

    Samples are stored unshifted. A trainer that leaves the shift to who writes its files
    (`token_shift="producer"`) gets it from who hands it the samples, an export in its format or the client,
    which go by its wiring: a note. A `raw` reader takes the stored samples as they are, and nobody is left
    to move anything: an error.
    """
    yield from _depth(schema.target, trainer)
    there = (*schema.names, *derivable(schema, None if raw else norm))
    for slot, name in enumerate(trainer.fc):
        if name not in there:
            yield _missing(schema, trainer, name, f"fc[{slot}]", "fc").model_copy(update={"slot": slot})
    if trainer.target is not None and trainer.target.tensor not in there:
        yield _missing(schema, trainer, trainer.target.tensor, "target", "target")
    if norm is not None and not raw:
        yield from _derived(schema, trainer, norm)
    if trainer.token_shift == "producer":
        yield _unshifted(trainer, raw)


def _missing(
    schema: Schema, trainer: Wiring, name: str, where: str, role: Literal["fc", "target"]
) -> Problem:
    return Problem(
        where=where,
        kind="missing",
        message=f"expected {name} for {trainer.title}, got a dataset of {', '.join(schema.names)}",
        repair=_how_to_get(name, schema),
        role=role,
        expected=name,
    )


def _derived(schema: Schema, consumer: Wiring, norm: FinalNorm) -> Iterator[Problem]:
    """Yield that a tensor which a consumer takes is not stored, but made as it is read."""
    made = derivable(schema, norm)
    taken = [*consumer.fc, *([consumer.target.tensor] if consumer.target else [])]
    for slot, name in enumerate(taken):
        if name in made:
            where = f"fc[{slot}]" if slot < len(consumer.fc) else "target"
            yield Problem(where=where, kind="derived", severity="note", message=derived_note(norm))


def _unshifted(trainer: Wiring, raw: bool) -> Problem:
    """Say who moves the tokens for a trainer that does not, on samples where token i stands with state i."""
    told = f"expected tokens that are shifted already ({trainer.title} does not shift), got samples that are "
    if not raw:
        return Problem(
            where="token_shift",
            kind="token_shift",
            severity="note",
            message=told + "stored unshifted: an export in its format, or the client by this wiring, moves "
            "them one to the left",
            repair="hand it the samples in one of these two ways, not as they are stored",
        )
    return Problem(
        where="token_shift",
        kind="token_shift",
        message=told + "read as they are stored: they are never moved, state i with token i, and the draft "
        "learns to repeat the token it is given",
        repair="hand it an export in its format, or the client's batches; both move tokens by its wiring",
    )


def dataset_server(schema: Schema, server: Wiring, *, norm: FinalNorm | None = None) -> Iterator[Problem]:
    """Yield what a server will feed that a dataset lacks: no weights trained on it can expect that."""
    yield from _depth(schema.target, server)
    if norm is not None:
        yield from _derived(schema, server, norm)
    for slot, name in enumerate(server.fc):
        if name not in (*schema.names, *derivable(schema, norm)):
            yield Problem(
                where=f"fc[{slot}]",
                kind="missing",
                message=f"expected a tensor of the dataset ({', '.join(schema.names)}), "
                f"got {name}, which {server.title} will feed",
                repair=f"{_how_to_get(name, schema)}, or write other layer ids in the draft's config "
                "(`strata wire` says which ids mean which boundaries)",
                role="fc",
                slot=slot,
                got=name,
            )


def trainer_alone(
    trainer: Wiring,
    intended: Intention | None = None,
    schema: Schema | None = None,
    norm: FinalNorm | None = None,
) -> Iterator[Problem]:
    """Yield what is wrong with a trainer's wiring by itself, and against what the draft is meant to take.

    A `schema` is that of the dataset it reads, and `norm` its target's, which the repair of a wrong target
    goes by.
    """
    for problem in target_problems(trainer):
        yield problem.model_copy(update={"repair": _target_repair(trainer, schema, norm, problem.repair)})
    if intended is None:
        return
    repair = f"feed {trainer.title} {', '.join(intended.fc)} as the input, in this order"
    if trainer.target is not None:
        repair += f", and {expected_target(trainer.target)} as the target"
    severity: Severity = "error" if intended.certain else "note"
    got_by = f"what {trainer.title} takes"
    yield from slot_problems(intended.fc, trainer.fc, intended.by, got_by, repair, severity)


def _target_repair(
    trainer: Wiring, schema: Schema | None, norm: FinalNorm | None, otherwise: str | None
) -> str | None:
    if schema is None or trainer.target is None:
        return otherwise
    name = expected_target(trainer.target)
    if name in schema.names:
        return f"feed {name}, which the dataset has, as the target"
    if name in derivable(schema, norm):
        return f"feed {name}, which is made from {FINAL}, as the target"
    return f"feed {name} as the target; the dataset has none: {_how_to_get(name, schema)}"


def trainer_server(trainer: Wiring, server: Wiring, how: str | None = None) -> Iterator[Problem]:
    """Yield every slot in which weights were trained on another tensor than they will be served.

    `how` says what to write so that the server feeds what was trained on, or why it cannot.
    """
    by, served = f"the weights were trained on it by {trainer.title}", f"what {server.title} will feed"
    how = how or (
        f"write layer ids in the draft's config so that {server.title} feeds {', '.join(trainer.fc)} "
        "(`strata wire` says which)"
    )
    repair = f"{how}; or train on {', '.join(server.fc)}"
    if trainer.n_layers != server.n_layers:
        yield _other_depth(trainer.n_layers, f"as {trainer.title} was trained on", server)
    for problem in slot_problems(trainer.fc, server.fc, by, served, repair):
        yield problem.model_copy(update={"where": f"served {problem.where}"})
    yield from difference_notes(trainer, server)


def card_trainer(card: Card, trainer: Wiring) -> Iterator[Problem]:
    """Yield where a trainer takes something else than what a card says that the draft is trained on."""
    meant, got_by = card.wiring, f"what {trainer.title} takes"
    by = "as the card says"
    if trainer.n_layers != meant.n_layers:
        yield _other_depth(meant.n_layers, by, trainer)
    repair = f"feed {trainer.title} {', '.join(meant.fc)} as the input, in this order"
    yield from slot_problems(meant.fc, trainer.fc, by, got_by, repair)
    yield from target_differences(meant, trainer, by, got_by)
    yield from shift_differences(meant, trainer, by, got_by)
    yield from difference_notes(meant, trainer)


def card_dataset(card: Card, schema: Schema) -> Iterator[Problem]:
    """Yield where a card speaks of another target than a dataset's: two models may share depth and width."""
    for problem in identity_differences("target", schema.target.identity(), card.target.identity()):
        yield problem.model_copy(
            update={
                "message": f"{problem.message}: the card is of {card.target.model_id}, the dataset of "
                f"{schema.target.model_id}",
                "repair": "use a dataset of the card's target; equal shapes are no reason to go on",
            }
        )
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
                message=f"expected {mine} ({target.model_id}), got {theirs} in the target's config",
                repair="give the config of the model that the states are of",
            )


def _depth(target: Target, wiring: Wiring) -> Iterator[Problem]:
    if target.n_layers != wiring.n_layers:
        yield _other_depth(target.n_layers, "as in the dataset", wiring)


def _other_depth(n_layers: int, by: str, wiring: Wiring) -> Problem:
    return Problem(
        where="target.n_layers",
        kind="target",
        message=f"expected {n_layers} layers {by}, got {wiring.n_layers} for {wiring.title}",
        repair="compare wirings of the same target",
    )


def _how_to_get(name: str, schema: Schema) -> str:
    if name == FINAL_NORMED and FINAL in schema.names:
        return (
            "the dataset has final, and not the target's norm, which makes final_normed of it: keep it with "
            "`strata norm --dataset ROOT/DATASET --target-model MODEL`; an export takes --target-model too"
        )
    return f"add {name} to tensors.names and make a dataset with it"
