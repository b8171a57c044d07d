"""Names and shapes of a draft's weights: one canonical set, and what others call the same."""

import re
from collections.abc import Iterable, Mapping

from datagen.replay.flags import Flags
from datagen.replay.sizes import Sizes
from schemas.contract.shown import listed_names
from schemas.problem import Problem

Shape = tuple[int, ...]
MAPS = ("d2t", "t2d")
_OLD = {
    "midlayer.": "layers.0.",
    "aux_norm_low.": "fc_norm.0.",
    "aux_norm_mid.": "fc_norm.1.",
    "aux_norm_high.": "fc_norm.2.",
}
_TARGETS_OWN = ("verifier_lm_head.weight", "verifier_norm.weight")
_QUANTIZED = re.compile(
    r"(weight_scale(_inv)?|scales?|zero_point|weight_packed|qweight|qzeros|g_idx|weight_shape)"
)


def canonical_name(name: str) -> str:
    """Return what a weight is called here.

    >>> canonical_name("midlayer.hidden_norm.weight"), canonical_name("model.fc.weight")
    ('layers.0.hidden_norm.weight', 'fc.weight')
    """
    bare = name.removeprefix("model.")
    for old, new in _OLD.items():
        if bare.startswith(old):
            return new + bare.removeprefix(old)
    return bare


def is_the_targets(name: str) -> bool:
    """Say whether a canonical name is a copy of the target's weight that a trainer left in the file."""
    return name in _TARGETS_OWN


def is_quantized(names: Iterable[str]) -> bool:
    """Say whether a checkpoint holds weights that need a method to be read."""
    return any(_QUANTIZED.fullmatch(name.rpartition(".")[2]) for name in names)


def needed_shapes(sizes: Sizes, flags: Flags, n_slots: int, model_type: str | None) -> dict[str, Shape]:
    """Return the weights that a draft cannot run without; the target has a head and an embedding."""
    hidden, head = sizes.hidden_size, sizes.head_dim
    shapes: dict[str, Shape] = {
        "fc.weight": (hidden, n_slots * sizes.slot_width),
        "norm.weight": (hidden,),
        "layers.0.hidden_norm.weight": (hidden,),
    }
    for layer in range(sizes.n_layers):
        read = 2 * hidden if layer == 0 else hidden
        of_layer: dict[str, Shape] = {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_proj": (sizes.n_heads * head, read),
            "self_attn.k_proj": (sizes.n_kv_heads * head, read),
            "self_attn.v_proj": (sizes.n_kv_heads * head, read),
            "self_attn.o_proj": (hidden, sizes.n_heads * head),
            "mlp.gate_proj": (sizes.intermediate_size, hidden),
            "mlp.up_proj": (sizes.intermediate_size, hidden),
            "mlp.down_proj": (hidden, sizes.intermediate_size),
        }
        if model_type == "qwen3":
            of_layer |= {"self_attn.q_norm": (head,), "self_attn.k_norm": (head,)}
        shapes |= {f"layers.{layer}.{name}.weight": shape for name, shape in of_layer.items()}
    if flags.norm_before_fc:
        shapes["input_norm.weight"] = (n_slots * sizes.slot_width,)
    if flags.fc_norm:
        shapes |= {f"fc_norm.{slot}.weight": (sizes.slot_width,) for slot in range(n_slots)}
    return shapes


def further_shapes(sizes: Sizes, n_slots: int, needed: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the weights that a draft may have beside those that it needs."""
    shapes: dict[str, Shape] = {
        "embed_tokens.weight": (sizes.vocab_size, sizes.hidden_size),
        "lm_head.weight": (sizes.draft_vocab_size, sizes.hidden_size),
        "input_norm.weight": (n_slots * sizes.slot_width,),
    }
    shapes |= {f"fc_norm.{slot}.weight": (sizes.slot_width,) for slot in range(n_slots)}
    for layer in range(sizes.n_layers):
        shapes |= {f"layers.{layer}.self_attn.{one}_norm.weight": (sizes.head_dim,) for one in "qk"}
    biases = [name for name in needed if name.endswith("_proj.weight") or name == "fc.weight"]
    shapes |= {f"{name.removesuffix('.weight')}.bias": needed[name][:1] for name in biases}
    return {name: shape for name, shape in shapes.items() if name not in needed}


def name_problems(
    found: Mapping[str, Shape], needed: Mapping[str, Shape], further: Mapping[str, Shape]
) -> list[Problem]:
    """Return what is missing, unknown or of another shape among canonical names."""
    known = {**further, **needed}
    problems = []
    missing = [name for name in needed if name not in found]
    if missing:
        problems.append(
            Problem(
                where="weights",
                kind="weight_missing",
                message=f"expected {listed_names(missing)}, got none of that name",
                repair="export the whole draft; check that this is an EAGLE-3 draft and not a part of one",
            )
        )
    unknown = [name for name in found if name not in known]
    if unknown:
        problems.append(
            Problem(
                where="weights",
                kind="weight_unknown",
                message=f"expected weights of an EAGLE-3 draft alone, got {listed_names(unknown)}",
                repair="a forward pass without them would not be this draft's: rename or drop them",
            )
        )
    problems += [
        Problem(
            where=name,
            kind="shape",
            message=f"expected the shape {list(known[name])} by config.json, got {list(shape)}",
            repair="the config and the weights are of different drafts, or one was edited: take both from "
            "one export",
        )
        for name, shape in found.items()
        if name in known and shape != known[name]
    ]
    return problems
