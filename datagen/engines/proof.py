"""Holds a model's structure against its own numbers, on a few tokens, before anything is captured.

transformers' `output_hidden_states` is the witness: index i is boundary i for i < L, index L the final norm's
output. What cannot be proven is refused: an engine that captures something else gives every tensor the right
shape.

Proven are: every boundary; the final norm (the module that turns the last layer's output into the body's);
the lm_head after it; the dtype and width of every boundary; that no later layer writes into an earlier
boundary in place; and that tokens to the right of a token do not change its states.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from datagen.engines.errors import OpeningError
from datagen.engines.hooks import first, tapped
from datagen.engines.layers import Decoder, find_decoder
from schemas.boundary import all_names, place_of
from schemas.problem import Problem

PROBE_TOKENS = 7
ENDING_TOKENS = 5
# In one shape a dense model gives the very same bits; experts may round otherwise when others share them.
LEAK_TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-4}


@dataclass(frozen=True)
class Anatomy:
    """The proven parts of a causal model: token ids -> body(layers, norm) -> head."""

    decoder: Decoder
    norm: nn.Module
    head: nn.Module
    vocab_size: int

    @property
    def input_device(self) -> torch.device:
        """Where token ids go in."""
        return _device(self.decoder.body.get_input_embeddings())

    def run(self, ids: Tensor, **options: Any) -> Any:
        """Run the body on `ids` [B, S], without cache and without attention mask.

        Padding stands to the right: in a causal model no token sees it, so no mask is needed, and attention
        takes its fast path. That the model is causal is part of the proof.
        """
        return self.decoder.body(input_ids=ids, use_cache=False, **options)


def prove(model: Any, dtype: torch.dtype) -> Anatomy:
    """Return the parts of `model` after holding them against its numbers.

    Raises `OpeningError` with everything that could not be proven.
    """
    decoder = find_decoder(model)
    text_config = model.config.get_text_config(decoder=True)
    head = model.get_output_embeddings()
    if head is None:
        raise _refusal([_problem("lm_head", "expected an output embedding, got none")])
    device = _device(decoder.body.get_input_embeddings())
    ids = _probe_ids(text_config.vocab_size, device)
    with torch.inference_mode():
        norm = _find_norm(decoder, ids)
        anatomy = Anatomy(decoder, norm, head, text_config.vocab_size)
        seen, output = _seen_and_witness(anatomy, ids)
        problems = _boundary_problems(seen, output, text_config.hidden_size, dtype)
        problems += _head_problems(model, anatomy, ids, output)
        problems += _leak_problems(anatomy, ids, LEAK_TOLERANCE[dtype])
    if problems:
        raise _refusal(problems)
    return anatomy


def _probe_ids(vocab_size: int, device: torch.device) -> Tensor:
    """Return ids [1, S] spread over the vocabulary, the same at every start."""
    step = max(1, vocab_size // (PROBE_TOKENS + 1))
    return ((torch.arange(PROBE_TOKENS) + 1) * step % vocab_size)[None].to(device)


def _find_norm(decoder: Decoder, ids: Tensor) -> nn.Module:
    """Return the module that is given the last layer's output and whose output is the body's."""
    last: list[Tensor] = []
    calls: list[tuple[nn.Module, Tensor]] = []

    def after_the_last(module: nn.Module, args: tuple[object, ...], output: Any) -> None:
        given = args[0] if args else None
        if last and isinstance(given, Tensor) and _same(given, last[-1]):
            result = output[0] if isinstance(output, (tuple, list)) else output
            if isinstance(result, Tensor):
                calls.append((module, result))

    inside = set(decoder.layers.modules()) | {decoder.body}
    handles = [decoder.layers[-1].register_forward_hook(lambda _m, _a, output: last.append(first(output)))]
    handles += [
        module.register_forward_hook(after_the_last)
        for module in decoder.body.modules()
        if module not in inside
    ]
    try:
        result = decoder.body(input_ids=ids, use_cache=False).last_hidden_state
    finally:
        for handle in handles:
            handle.remove()
    norms = [module for module, output in calls if _same(output, result)]
    if not norms:
        message = "expected a module between the last layer and the body's output, got none"
        raise _refusal([_problem("final norm", message)])
    return norms[-1]  # of modules that wrap one another the outermost returns last


def _seen_and_witness(anatomy: Anatomy, ids: Tensor) -> tuple[dict[str, Tensor], Any]:
    n_layers = len(anatomy.decoder.layers)
    places = {
        name: place for name in all_names(n_layers) if isinstance(place := place_of(name, n_layers), tuple)
    }
    seen: dict[str, Tensor] = {}
    with tapped(anatomy.decoder.layers, anatomy.norm, places, _keep_once(seen)):
        output = anatomy.run(ids, output_hidden_states=True)
    return seen, output


def _keep_once(seen: dict[str, Tensor]) -> Callable[[str, Tensor], None]:
    def keep(name: str, hidden: Tensor) -> None:
        if name in seen:
            raise _refusal([_problem(name, "expected to be run once a forward, got a second time")])
        seen[name] = hidden.clone()

    return keep


def _boundary_problems(
    seen: dict[str, Tensor], output: Any, hidden_size: int, dtype: torch.dtype
) -> list[Problem]:
    witness = output.hidden_states
    n_layers = len(seen) - 2
    if witness is None or len(witness) != n_layers + 1:
        got = "none" if witness is None else f"{len(witness)}"
        return [_problem("hidden_states", f"expected {n_layers + 1} from the model, got {got}")]
    problems = []
    for name, hidden in seen.items():
        facts = (hidden.dtype, tuple(hidden.shape[2:]))
        if facts != (dtype, (hidden_size,)):
            message = (
                f"expected {dtype} of width {hidden_size}, got {facts[0]} of shape {tuple(hidden.shape)}"
            )
            problems.append(_problem(name, message))
    for index, expected in enumerate(witness):
        name = "final_normed" if index == n_layers else ("embed" if index == 0 else f"layer{index}")
        if not _same(seen[name], expected):
            problems.append(_problem(name, f"expected the model's hidden_states[{index}], got other values"))
    return problems


def _head_problems(model: Any, anatomy: Anatomy, ids: Tensor, output: Any) -> list[Problem]:
    """The whole model's own choice must be the body's, by the head: also where a wrapper holds the body."""
    normed = output.last_hidden_state
    logits = model(input_ids=ids, use_cache=False).logits[0].float()
    mine = anatomy.head(normed.to(_device(anatomy.head)))[0].float().argmax(-1).to(logits.device)
    best = logits.max(-1).values
    chosen = logits.gather(-1, mine[:, None])[:, 0]
    # Rounding may part a tie; a wrong norm or head misses by the spread of the logits.
    misses = (best - chosen > 0.02 * (best - logits.mean(-1)).abs()).sum().item()
    if misses == 0:
        return []
    message = (
        f"expected lm_head(norm(final)) to choose as the model does, got {misses} of {len(mine)} otherwise"
    )
    return [_problem("lm_head", message)]


def _leak_problems(anatomy: Anatomy, ids: Tensor, tolerance: float) -> list[Problem]:
    """Two endings of one shape: what the tokens before them become must not depend on which it was."""
    endings = (ids.new_zeros((1, ENDING_TOKENS)), ids[:, :ENDING_TOKENS])
    one, other = (
        anatomy.run(torch.cat([ids, ending], dim=1)).last_hidden_state[0, : ids.shape[1]].float()
        for ending in endings
    )
    error = ((one - other).norm(dim=-1) / other.norm(dim=-1).clamp_min(1e-20)).median().item()
    if error <= tolerance:
        return []
    message = f"expected states that no later token changes (error at most {tolerance}), got {error:.3g}"
    return [_problem("attention", message)]


def _same(left: Tensor, right: Tensor) -> bool:
    return left.numel() == right.numel() and torch.equal(left.reshape(-1), right.to(left.device).reshape(-1))


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def _problem(where: str, message: str) -> Problem:
    return Problem(where=where, kind="structure", message=message)


def _refusal(problems: list[Problem]) -> OpeningError:
    return OpeningError("the structure of the model cannot be proven", problems)
