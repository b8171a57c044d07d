"""What a forward pass needs of a draft's config.json, with the defaults of its model's class filled in.

speculators writes only what departs from those defaults, so the file alone does not say it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig
from transformers.activations import ACT2FN

from schemas.contract import DraftContract
from schemas.contract.shown import shown
from schemas.problem import Problem

MODEL_TYPES = ("llama", "qwen3")
"""Types whose decoder layer is run here; speculators 0.9.0 trains no other."""
MOST_LAYERS = 64
"""More are no draft; and a number from a broken file shall not fill the memory."""
COUNTS = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "num_hidden_layers",
    "vocab_size",
)
_DEFAULT_TYPE = {"plain": "llama", "speculators": "qwen3"}


@dataclass(frozen=True)
class Sizes:
    """Sizes of a draft and what else its layers depend on; lengths in elements."""

    hidden_size: int
    intermediate_size: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_layers: int
    slot_width: int
    """Width of one slot of the `fc` input: the target's hidden size."""
    vocab_size: int
    draft_vocab_size: int
    eps: float
    activation: str
    max_positions: int
    windowed: tuple[bool, ...]
    """Of each layer, whether a window applies to it."""


def sizes_of(config: Mapping[str, Any], contract: DraftContract) -> Sizes | tuple[Problem, ...]:
    """Return the sizes that `config` states, or what keeps them from being read."""
    body = config.get("transformer_layer_config", {}) if contract.layout == "speculators" else config
    model_type = contract.model_type or _DEFAULT_TYPE[contract.layout]
    if model_type not in MODEL_TYPES:
        return (
            Problem(
                where="model_type",
                kind="model_type",
                message=f"expected {' or '.join(MODEL_TYPES)}, got {shown(model_type)}: its decoder layer is "
                "not known here",
                repair="replay knows the drafts of speculators, SpecForge and SGLang of these types",
            ),
        )
    values = {key: value for key, value in body.items() if key != "model_type"}
    # Before transformers sees them: it divides by some.
    given = {name: values[name] for name in COUNTS if values.get(name) is not None}
    if problems := _count_problems(given):
        return problems
    try:
        filled = AutoConfig.for_model(model_type, **values)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, StrictDataclassError) as error:
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        return (
            Problem(
                where="config.json", kind="config", message=f"expected a config of {model_type}, got {first}"
            ),
        )
    return _judged(filled, contract)


def _count_problems(counts: Mapping[str, Any]) -> tuple[Problem, ...]:
    return tuple(
        _expected(name, "a whole number of at least 1", value)
        for name, value in counts.items()
        if type(value) is not int or value < 1
    )


def _judged(filled: Any, contract: DraftContract) -> Sizes | tuple[Problem, ...]:
    hidden = filled.hidden_size
    n_kv = getattr(filled, "num_key_value_heads", None) or filled.num_attention_heads
    whole = {name: getattr(filled, name, None) for name in COUNTS} | {"num_key_value_heads": n_kv}
    problems = list(_count_problems(whole))
    if not problems and filled.num_hidden_layers > MOST_LAYERS:
        most = f"at most {MOST_LAYERS} layers in a draft"
        problems.append(_expected("num_hidden_layers", most, filled.num_hidden_layers))
    if problems:
        return tuple(problems)
    head_dim = getattr(filled, "head_dim", None) or hidden // filled.num_attention_heads
    if filled.num_attention_heads % n_kv:
        problems.append(_expected("num_key_value_heads", f"a divisor of {filled.num_attention_heads}", n_kv))
    if type(head_dim) is not int or head_dim < 2 or head_dim % 2:
        problems.append(_expected("head_dim", "an even number of at least 2", head_dim))
    if not isinstance(filled.rms_norm_eps, float) or not 0 < filled.rms_norm_eps < 1:
        problems.append(_expected("rms_norm_eps", "a number between 0 and 1", filled.rms_norm_eps))
    if not isinstance(filled.hidden_act, str) or filled.hidden_act not in ACT2FN:
        problems.append(_expected("hidden_act", "an activation of transformers", filled.hidden_act))
    if type(filled.max_position_embeddings) is not int or filled.max_position_embeddings < 1:
        got = filled.max_position_embeddings
        problems.append(_expected("max_position_embeddings", "a whole number of at least 1", got))
    if problems:
        return tuple(problems)
    n_layers = filled.num_hidden_layers
    types = getattr(filled, "layer_types", None) or []
    return Sizes(
        hidden_size=hidden,
        intermediate_size=filled.intermediate_size,
        n_heads=filled.num_attention_heads,
        n_kv_heads=n_kv,
        head_dim=head_dim,
        n_layers=n_layers,
        slot_width=contract.shape.target_hidden_size or hidden,
        vocab_size=filled.vocab_size,
        draft_vocab_size=contract.vocabulary.draft_size or filled.vocab_size,
        eps=filled.rms_norm_eps,
        activation=filled.hidden_act,
        max_positions=filled.max_position_embeddings,
        windowed=tuple(
            types[layer] == "sliding_attention" if layer < len(types) else True for layer in range(n_layers)
        )
        if "sliding_attention" in types
        else (True,) * n_layers,
    )


def _expected(where: str, what: str, got: object) -> Problem:
    return Problem(
        where=where,
        kind="type",
        message=f"expected {what}, got {shown(got)}",
        repair=f"correct {where} in the draft's config.json",
    )
