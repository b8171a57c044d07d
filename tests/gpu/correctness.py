"""The engine against transformers' own hidden states, on the device, in bfloat16."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from datagen.engines.hooks import first
from datagen.engines.layers import find_decoder
from schemas.boundary import all_names
from tests.datagen.engines.tiny_models import CAUSAL, VOCAB
from tests.gpu.models import engine_of, random_model, report

LENGTHS = (9, 1, 23, 16, 2)
ADDS_POSITIONS = ("gpt2", "opt")
"""Of these `embed` is more than rows of a table."""


def check(device: str) -> list[str]:
    """Return what is wrong, a line a finding."""
    failed = []
    for family, config in CAUSAL.items():
        model = random_model(config(), device)
        findings = _of_a_model(model, device)
        report("correctness", family=family, device=device, findings=len(findings))
        failed += [f"{family}: {finding}" for finding in findings]
    return failed


def _of_a_model(model: Any, device: str) -> list[str]:
    engine = engine_of(model, device, all_names(model.config.num_hidden_layers))
    rng = np.random.default_rng(3)
    batch = [rng.integers(0, VOCAB, length).tolist() for length in LENGTHS]
    pending = engine.submit(batch, with_argmax=True)
    engine.submit(batch)  # a second batch on the device while the first is copied out
    captures = pending.result()
    said, again = _oracle(model, batch, device), _oracle(model, batch, device)
    findings = []
    agreed = []
    for index, (ids, capture) in enumerate(zip(batch, captures, strict=True)):
        if capture.token_ids.tolist() != ids:
            findings.append(f"sample {index}: expected its own token ids, got others")
        for name, rows in capture.tensors.items():
            expected = said[name][index, : len(ids)]
            # Experts add up in any order on a GPU: what transformers does not repeat need not be equal.
            repeats = np.array_equal(said[name], again[name])
            error = _error(rows, expected)
            if not np.array_equal(rows.astype(np.float32), expected) and (repeats or error > 0.005):
                findings.append(f"sample {index} {name}: expected transformers' values, got {error:.3g} off")
            norms = np.linalg.norm(expected, axis=-1)
            if not np.allclose(capture.norms[name], norms, rtol=1e-3):
                findings.append(f"sample {index} {name}: expected the norms of its rows, got others")
        agreed.append(engine.head_argmax(capture.tensors["final"]) == capture.argmax)
    if np.concatenate(agreed).mean() < 0.98:
        findings.append("final: expected the head to choose as the engine did in 98% of rows, got fewer")
    return findings + _leaks(engine) + _ends(model, engine, captures)


def _ends(model: Any, engine: Any, captures: Any) -> list[str]:
    """The ends that bind samples to their ids are copies in host memory: the device's own arithmetic."""
    ends = engine.ends()
    errors: dict[str, list[float]] = {"embed": [], "final_normed": [], "lm_head": []}
    for capture in captures:
        ids, tensors = capture.token_ids, capture.tensors
        errors["embed"].append(_error(ends.embed(ids), tensors["embed"].astype(np.float32)))
        normed = ends.norm(tensors["final"])
        errors["final_normed"].append(_error(normed, tensors["final_normed"].astype(np.float32)))
        chosen = np.argmax(normed @ ends.head(np.arange(VOCAB)).T, axis=1)
        errors["lm_head"].append(float((chosen != capture.argmax).mean()))
    allowed = {"embed": 0.0, "final_normed": 0.01, "lm_head": 0.1}
    if model.config.model_type in ADDS_POSITIONS:
        del errors["embed"]
    return [
        f"{name}: expected the ends in host memory to be the device's, got {np.median(found):.3g} off"
        for name, found in errors.items()
        if np.median(found) > allowed[name]
    ]


def _leaks(engine: Any) -> list[str]:
    short = [5, 6, 7, 8]
    one, other = (engine.submit([short, [token] * 30]).result()[0] for token in (0, VOCAB - 1))
    worst = {
        name: float(_error(one.tensors[name], other.tensors[name].astype(np.float32)))
        for name in engine.schema.names
    }
    return [
        f"{name}: expected states that a neighbour does not change, got {error:.3g} off"
        for name, error in worst.items()
        if error > 0.02
    ]


def _error(rows: NDArray[Any], expected: NDArray[np.float32]) -> float:
    """Return the median of the relative error a token."""
    difference = np.linalg.norm(rows.astype(np.float32) - expected, axis=-1)
    return float(np.median(difference / np.maximum(np.linalg.norm(expected, axis=-1), 1e-20)))


def _oracle(model: Any, batch: list[list[int]], device: str) -> dict[str, NDArray[np.float32]]:
    longest = max(map(len, batch))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in batch], device=device)
    last: list[torch.Tensor] = []
    handle = (
        find_decoder(model)
        .layers[-1]
        .register_forward_hook(lambda _module, _args, output: last.append(first(output).clone()))
    )
    with torch.inference_mode():
        output = model(input_ids=ids, output_hidden_states=True, use_cache=False)
    handle.remove()
    n_layers = len(output.hidden_states) - 1
    tensors = dict(zip(all_names(n_layers)[:n_layers], output.hidden_states, strict=False))
    tensors |= {"final": last[0], "final_normed": output.hidden_states[n_layers]}
    return {name: tensor.float().cpu().numpy() for name, tensor in tensors.items()}
