"""Boundaries and the names of tensors: the one place that says what `layer3` means.

A boundary `b` is the residual stream after `b` decoder layers: `b=0` the embedding output, `b=L` the last
one, before the final norm. A tensor's name follows from its boundary and norm state, and back:

    embed           b=0          pre_norm
    layer{b}        0 < b < L    pre_norm
    final           b=L          pre_norm    the input of the final norm
    final_normed    b=L          post_norm   what goes into the lm_head

transformers' `hidden_states[i]` is boundary `i` for `i < L`, but index `L` is `final_normed`, not `final`.
"""

import re
from typing import Literal, NamedTuple, get_args

from schemas.problem import Problem

NormState = Literal["pre_norm", "post_norm"]
NORM_STATES: tuple[NormState, ...] = get_args(NormState)

EMBED = "embed"
FINAL = "final"
FINAL_NORMED = "final_normed"
_LAYER = re.compile(r"layer([1-9][0-9]{0,5})")


class Place(NamedTuple):
    """Where a tensor stands in the model."""

    boundary: int
    norm: NormState


def place_of(name: str, n_layers: int) -> Place | Problem:
    """Return the place that `name` means in a model of `n_layers` layers, or what is wrong with it.

    >>> place_of("layer3", 61)
    Place(boundary=3, norm='pre_norm')
    >>> place_of("final", 61)
    Place(boundary=61, norm='pre_norm')
    >>> print(place_of("layer61", 61).message)
    expected a layer between 1 and 60 of a model with 61 layers, got 61
    """
    if name == EMBED:
        return Place(0, "pre_norm")
    if name == FINAL:
        return Place(n_layers, "pre_norm")
    if name == FINAL_NORMED:
        return Place(n_layers, "post_norm")
    match = _LAYER.fullmatch(name)
    if match is None or n_layers == 1:
        between = f"layer1 to layer{n_layers - 1}, " if n_layers > 1 else ""
        return Problem(
            where=name,
            kind="tensor_name",
            message=f"expected embed, {between}final or final_normed, got {name!r}",
            repair="a layer is written without leading zeros; layer0 is `embed`",
        )
    boundary = int(match.group(1))
    if boundary >= n_layers:
        repair = f"boundary {n_layers} is `final`, before the final norm, or `final_normed`, after it"
        return Problem(
            where=name,
            kind="tensor_name",
            message=(
                f"expected a layer between 1 and {n_layers - 1} of a model with {n_layers} layers, "
                f"got {boundary}"
            ),
            repair=repair,
        )
    return Place(boundary, "pre_norm")


def name_of(boundary: int, n_layers: int, norm: NormState = "pre_norm") -> str:
    """Return the name of a boundary.

    Raises `ValueError` when the model has no such boundary, or none with that norm state.

    >>> [name_of(b, 30) for b in (0, 2, 30)]
    ['embed', 'layer2', 'final']
    >>> name_of(30, 30, "post_norm")
    'final_normed'
    """
    if not 0 <= boundary <= n_layers:
        raise ValueError(f"expected a boundary between 0 and {n_layers}, got {boundary}")
    if norm == "post_norm":
        if boundary != n_layers:
            raise ValueError(f"only boundary {n_layers} has a post-norm state, got boundary {boundary}")
        return FINAL_NORMED
    if boundary == 0:
        return EMBED
    return FINAL if boundary == n_layers else f"layer{boundary}"


def all_names(n_layers: int) -> tuple[str, ...]:
    """Return every tensor name of a model in the order of depth, `final_normed` last.

    >>> all_names(3)
    ('embed', 'layer1', 'layer2', 'final', 'final_normed')
    """
    return (*(name_of(b, n_layers) for b in range(n_layers + 1)), FINAL_NORMED)
