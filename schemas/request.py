"""A request for samples against a dataset's schema: is what the asker means what the dataset holds?

A request may name the schema by its fingerprint, and its wiring and its card in full. All that is wrong
comes back at once; nothing is reordered, substituted or defaulted in silence: a wiring says its tensors.
"""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from schemas.boundary import place_of
from schemas.card import Card
from schemas.check import card_dataset, card_trainer, dataset_server, dataset_trainer, trainer_alone
from schemas.consumers.reading import MAX_IDS
from schemas.consumers.resolution import Shape, short
from schemas.consumers.resolve import resolve_trainer
from schemas.errors import RecordError
from schemas.final_norm import FinalNorm
from schemas.problem import Problem
from schemas.record import validation_problems
from schemas.schema import Schema
from schemas.target import Target
from schemas.wiring import Wiring

MAX_WIRING_BYTES = 1 << 16
"""A wiring of more bytes is none."""


def request_problems(
    schema: Schema,
    *,
    fingerprint: str | None = None,
    wiring: Wiring | None = None,
    card: Card | None = None,
    raw: bool = False,
    norm: FinalNorm | None = None,
) -> tuple[Problem, ...]:
    """Return everything in which a request departs from a dataset's schema; notes are among it.

    `fingerprint` is that of the schema which the asker reckons with. A `wiring` of a trainer is judged with
    its target; beside a `card` it must also be the card's, and a card alone stands for its own wiring.
    `norm` is the target's, where it is kept: it makes `final_normed` of `final`.
    `raw` says that the asker reads samples as they are stored, and does not move tokens by its wiring.
    """
    found: list[Problem] = []
    if fingerprint is not None and fingerprint != schema.fingerprint:
        found.append(_other_schema(schema, fingerprint))
    if card is not None:
        found += card_dataset(card, schema)
    asked = wiring if wiring is not None else card.wiring if card is not None else None
    if asked is not None and asked.kind == "server":
        found += dataset_server(schema, asked, norm=norm)
    elif asked is not None:
        found += trainer_alone(asked, schema=schema, norm=norm)
        found += dataset_trainer(schema, asked, raw=raw, norm=norm)
    if card is not None and wiring is not None:
        found += card_trainer(card, wiring)
    return tuple(dict.fromkeys(found))


def read_wiring(data: bytes, target: Target, where: str = "wiring") -> Wiring:
    """Read the wiring of a request, as JSON with every tensor named.

    Raises `RecordError` with every problem: what is no wiring, names that `target` does not have, and a bare
    library name, whose default for this target is then written out in the repair.
    """
    content = _json(data, where)
    if isinstance(content, str) or (isinstance(content, dict) and not content.get("fc")):
        raise RecordError(f"{where} names no tensors", [_bare(content, target, where)])
    try:
        return Wiring.model_validate_json(data, strict=True)
    except ValidationError as error:
        problems = [*_names(content, where)] or [*_fields(error, where)]
        raise RecordError(f"{where} is not a valid Wiring", problems) from error


def _other_schema(schema: Schema, fingerprint: str) -> Problem:
    return Problem(
        where="schema_fingerprint",
        kind="schema",
        message=f"expected {schema.fingerprint} ({', '.join(schema.names)} of {schema.target.model_id}), got "
        f"{short(fingerprint, 70)}: the target, a tensor or a token column is another; a fingerprint does "
        "not say which",
        repair="compare the schema that the fingerprint was taken of with this dataset's, field by field; "
        "then ask for the dataset that has it, or send this dataset's if the differences are meant",
        expected=schema.fingerprint,
        got=fingerprint[:64],
    )


def _json(data: bytes, where: str) -> Any:
    if len(data) > MAX_WIRING_BYTES:
        said = f"expected at most {MAX_WIRING_BYTES} bytes, got {len(data)}"
        raise _refused(where, "size", said)
    try:
        content = json.loads(data, object_pairs_hook=_each_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise _refused(where, "json", f"expected JSON, got: {str(error)[:200]}") from error
    fc = content.get("fc") if isinstance(content, dict) else None
    if isinstance(fc, list) and len(fc) > MAX_IDS:
        raise _refused(f"{where}.fc", "slots", f"expected at most {MAX_IDS} slots, got {len(fc)}")
    return content


def _refused(where: str, kind: str, message: str) -> RecordError:
    problem = Problem(where=where, kind=kind, message=message, repair=_write(_EXAMPLE))
    return RecordError(f"{where} is not a valid Wiring", [problem])


_EXAMPLE = (
    '{"consumer": "mine", "kind": "trainer", "n_layers": 61, "fc": ["layer3", "layer31", "layer59"], '
    '"target": {"tensor": "final", "applies_norm": true}}'
)


def _write(example: str) -> str:
    return f"write it as {example}"


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key twice in one object, where each may stand once")
    return content


def _no_number(text: str) -> float:
    raise ValueError(f"{text}, which is no JSON number")


def _bare(content: str | dict[str, Any], target: Target, where: str) -> Problem:
    """Say that a name is no wiring, and what that consumer's default would be, written out."""
    said = content if isinstance(content, str) else content.get("consumer")
    name, _, version = said.partition("==") if isinstance(said, str) else ("", "", "")
    given = content.get("version") if isinstance(content, dict) else version
    shape = Shape(model_type=target.model_type, n_layers=target.n_layers)
    resolved = resolve_trainer(name, given if isinstance(given, str) and given else None, shape)
    if resolved.wiring is not None:
        written = json.dumps(resolved.wiring.model_dump(mode="json", exclude_none=True))
        repair = f"if you mean its default for {target.n_layers} layers, write it out: {written}"
    else:
        why = "; ".join(str(problem) for problem in resolved.problems)
        repair = f"{_write(_EXAMPLE)}; it has no default that could be written out ({why})"
    return Problem(
        where=f"{where}.fc",
        kind="bare",
        message=f"expected the tensors of every slot by name, got {short(said)} alone: what it takes hangs "
        "on its version, the model and its flags",
        repair=repair,
        role="fc",
    )


def _names(content: Any, where: str) -> Iterator[Problem]:
    """Yield each name that the wiring's own number of layers does not have, by role and slot."""
    n_layers = content.get("n_layers") if isinstance(content, dict) else None
    if type(n_layers) is not int or n_layers < 1:
        return
    slots = content["fc"] if isinstance(content["fc"], list) else []
    target = content.get("target")
    named: list[tuple[str, int | None, Any]] = [("fc", slot, name) for slot, name in enumerate(slots)]
    named += [("target", None, target.get("tensor"))] if isinstance(target, dict) else []
    for role, slot, name in named:
        place = place_of(name, n_layers) if isinstance(name, str) else None
        if isinstance(place, Problem):
            at = f"{where}.{role}" + ("" if slot is None else f"[{slot}]")
            yield place.model_copy(update={"where": at, "role": role, "slot": slot, "got": short(name)})


def _fields(error: ValidationError, where: str) -> Iterator[Problem]:
    for problem in validation_problems(error):
        update = {"where": f"{where}.{problem.where}".removesuffix(".(root)")}
        yield problem.model_copy(update={**update, "repair": problem.repair or _write(_EXAMPLE)})
