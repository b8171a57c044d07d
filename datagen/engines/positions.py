"""How long a sample may be, and which samples may share a forward.

With some position codes a sample's states depend on its neighbours: longrope takes other frequencies for a
whole batch as soon as its longest row passes the trained length (Phi-3), dynamic NTK scales by the longest
row that ever ran. The first is met by batching each side of that length apart; with the second a sample has
no states of its own beyond the trained length, so longer ones are refused. (Source: transformers,
`modeling_rope_utils.py`.)
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from schemas.problem import Problem


class PositionRule(NamedTuple):
    """`longest` is the most tokens a sample may have, `parting` the length that batches must not straddle."""

    longest: int | None
    parting: int | None


def position_rule(text_config: Any) -> PositionRule:
    """Return what the config's position code allows."""
    longest = getattr(text_config, "max_position_embeddings", None)
    parting = None
    for rope in _ropes(getattr(text_config, "rope_parameters", None)):
        kind = rope.get("rope_type", "default")
        trained = rope.get("original_max_position_embeddings") or longest
        if kind == "longrope":
            parting = trained
        elif "dynamic" in kind:
            longest = trained
    return PositionRule(longest, parting)


def one_side_problem(text_config: Any, longest: int | None, where: str, repair: str) -> Problem | None:
    """Return why a server of requests of up to `longest` tokens runs short samples as the model does not.

    vLLM takes longrope's long factors for every sample as soon as a request may pass the trained length
    (`Phi3LongRoPEScaledRotaryEmbedding`, 0.32.0); the model takes them for the samples that do.
    """
    parting = position_rule(text_config).parting
    if parting is None or longest is None or longest <= parting:
        return None
    message = (
        f"expected requests of at most the {parting} tokens that the model was trained with, got {longest}: "
        "with longer ones the long factors of its positions (longrope) are taken for every sample"
    )
    return Problem(where=where, kind="length", message=message, repair=repair.format(parting, parting - 1))


def together(lengths: Sequence[int], rule: PositionRule) -> list[list[int]]:
    """Return the positions in `lengths` of the samples that may share a forward.

    >>> together([3, 9, 4], PositionRule(16, 4))
    [[0, 2], [1]]
    """
    if rule.parting is None:
        return [list(range(len(lengths)))]
    short = [index for index, length in enumerate(lengths) if length <= rule.parting]
    long = [index for index, length in enumerate(lengths) if length > rule.parting]
    return [group for group in (short, long) if group]


def _ropes(parameters: Any) -> Iterator[dict[str, Any]]:
    """Yield the parameters of each rope: one, or one a layer type."""
    if not isinstance(parameters, dict):
        return
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    yield from nested or [parameters]
