"""Which layers vLLM is asked for, and what is made beside its forward, so that a schema's tensors are there.

Its ids and its refusals are those of `schemas.consumers`, which are tried against its own code. Where a model
gives no id 0 (DeepSeek and its like add a residual that is not there yet before layer 0), `embed` comes from
the loaded model's own embedding layer: what that returns is what enters layer 0, unless the config scales it.
`final_normed` is the model's own norm, run on `final`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from schemas.boundary import EMBED, FINAL, FINAL_NORMED
from schemas.consumers.resolution import Shape
from schemas.consumers.write import what_to_write
from schemas.problem import Problem
from schemas.schema import Schema

SCALING = ("embedding_multiplier", "scale_emb", "embedding_scale", "normalize_embedding", "embed_scale")
"""What a config says where the embedding is scaled after its layer."""
RUNNER = "vllm-v1"


class Layers(NamedTuple):
    """`ids` are vLLM's, ascending, and `slots` says which of them holds which tensor.

    `embed_beside` and `normed` say that `embed` and `final_normed` are made of what else is there. With
    `normed` there is a slot of `final`, whether or not it is handed out. `assumed` is what is not declared of
    this release or this model.
    """

    ids: tuple[int, ...]
    slots: dict[str, int]
    embed_beside: bool
    normed: bool
    assumed: tuple[str, ...] = ()


def layers_of(schema: Schema, version: str, config: Any) -> Layers | list[Problem]:
    """Return what vLLM of `version` is asked for, or every reason why it cannot give these tensors.

    `config` is the text model's, which is asked whether it scales its embedding.
    """
    target = schema.target
    shape = Shape(model_type=target.model_type, n_layers=target.n_layers)
    asked = sorted({spec.boundary for spec in schema.tensors})
    normed = FINAL_NORMED in schema.names
    written = what_to_write(RUNNER, version, shape, asked)
    beside = False
    if written.ids is None and 0 in asked:
        rest = asked[1:] or [target.n_layers]
        again = what_to_write(RUNNER, version, shape, rest)
        scaling = [name for name in SCALING if getattr(config, name, None) not in (None, False, 1, 1.0)]
        if again.ids is not None and scaling:
            return [_scaled(scaling)]
        if again.ids is not None:
            written, asked, beside = again, rest, True
    if written.ids is None:
        return [
            problem.model_copy(update={"where": "engine", "repair": "declare other tensors, or engine hf"})
            for problem in written.problems
            if problem.severity == "error"
        ]
    place = {boundary: slot for slot, boundary in enumerate(asked)}
    slots = {
        spec.name: place[spec.boundary]
        for spec in schema.tensors
        if spec.name != FINAL_NORMED and not (beside and spec.name == EMBED)
    }
    if normed:
        slots[FINAL] = place[target.n_layers]
    return Layers(written.ids, slots, beside, normed, written.assumptions)


def passes(layers: Layers, width: int, every: Sequence[int]) -> list[tuple[tuple[int, ...], dict[str, int]]]:
    """Return the passes of `width` ids each that give all of `layers`: the ids, and the slots that are new.

    A pass always has `width` ids, since vLLM's buffers do: the last is filled up from `every`.

    >>> passes(Layers((0, 1, 2), {"embed": 0, "layer1": 1, "final": 2}, False, False), 2, range(4))
    [((0, 1), {'embed': 0, 'layer1': 1}), ((0, 2), {'final': 1})]
    """
    made = []
    for start in range(0, len(layers.ids), width):
        wanted = layers.ids[start : start + width]
        filling = [one for one in every if one not in wanted][: width - len(wanted)]
        ids = tuple(sorted((*wanted, *filling)))
        slots = {
            name: ids.index(layers.ids[slot])
            for name, slot in layers.slots.items()
            if layers.ids[slot] in wanted
        }
        made.append((ids, slots))
    return made


def rotation_problem(config: Any) -> Problem | None:
    """Return why vLLM's build for CPUs runs a text model wrongly, `None` where it does not.

    Its kernel of plain rotary positions takes the heads of a query [token, head, width] for tokens, which is
    how latent attention calls it: `layer1` of a small DeepSeek-V3 was 0.9% to 28% off (0.32.0). With the
    positions that DeepSeek-V3 and Kimi-K2 have (yarn) another implementation runs, which is right.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    if getattr(config, "kv_lora_rank", None) is None or rope.get("rope_type", "default") != "default":
        return None
    return Problem(
        where="engine.name",
        kind="engine",
        message=(
            "expected a model whose rotary positions vLLM rotates rightly on the CPU, got latent attention "
            "with plain ones"
        ),
        repair="run it on a GPU, or with engine hf",
    )


def _scaled(names: Sequence[str]) -> Problem:
    return Problem(
        where=EMBED,
        kind="boundary",
        message=(
            "expected a boundary that vLLM gives, or an embedding that goes into the first layer as it is, "
            f"got a model whose config scales it ({', '.join(names)})"
        ),
        repair="leave embed out, or engine hf",
    )
