"""Rotary embeddings in a config: `rope_parameters`, or `rope_theta` and `rope_scaling` before it."""

from schemas.contract.draft import Rope, RopeSpelling, ScalingValue
from schemas.contract.fields import Fields, is_finite
from schemas.problem import Problem

_MAX_VALUES = 4096
"""Longer lists than any head dimension are no factors."""


def read_rope(body: Fields) -> Rope:
    """Return the RoPE that a config states; two spellings with different values are a problem."""
    parameters = body.section("rope_parameters")
    nested = next((key for key in ("full_attention", "sliding_attention") if key in parameters.values), None)
    if nested is not None:
        parameters = parameters.section(nested)
    scaling = body.section("rope_scaling")
    new, old = parameters.number("rope_theta"), body.number("rope_theta")
    if new is not None and old is not None and new != old:
        body.problems.append(_two("rope_theta", f"{new:g}", f"{old:g}"))
    new_scaling, old_scaling = _scaling(parameters), _scaling(scaling)
    if new_scaling and old_scaling and new_scaling != old_scaling:
        body.problems.append(_two("rope_scaling", "one scaling", "another"))
    theta = new if new is not None else old
    spelling: RopeSpelling | None = None
    if parameters.values and old is None and not scaling.values:
        spelling = "rope_parameters"
    elif old is not None or scaling.values:
        spelling = "rope_theta"
    return Rope(theta=theta, scaling=new_scaling or old_scaling, spelling=spelling)


def _two(where: str, new: str, old: str) -> Problem:
    return Problem(
        where=where,
        kind="conflict",
        message=f"expected one value, got {new} in rope_parameters and {old} beside it: old and new servers "
        "would rotate differently",
        repair="keep the value that the draft was trained with in both places",
    )


def _scaling(fields: Fields) -> dict[str, ScalingValue]:
    """Return what scales, sorted; `rope_type: default` and no entry mean the same."""
    found: dict[str, ScalingValue] = {}
    for key in sorted(fields.values, key=str):
        value = fields.values[key]
        if key == "rope_theta" or value is None:
            continue
        kept = _kept(value)
        if kept is None:
            fields.expected(str(key), "a finite number, a word or a list of them", value)
        else:
            found["rope_type" if key == "type" else str(key)] = kept
    return {} if found.get("rope_type", "default") == "default" and len(found) <= 1 else found


def _kept(value: object) -> ScalingValue | None:
    if isinstance(value, list) and len(value) <= _MAX_VALUES:
        items = [_scalar(item) for item in value]
        kept = tuple(item for item in items if item is not None)
        return kept if len(kept) == len(items) else None
    return _scalar(value)


def _scalar(value: object) -> bool | int | float | str | None:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float) and is_finite(value):
        return value
    return None
