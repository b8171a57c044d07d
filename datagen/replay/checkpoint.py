"""A draft from its folder, whoever wrote it: canonical weights, contract, flags and vocabulary maps.

Two layouts are read: speculators' own export, and the plain one of SpecForge, SGLang and vLLM. A folder that
is not one whole draft is told with everything that is wrong in it, and nothing of it is run.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from datagen.replay.errors import CheckpointError
from datagen.replay.flags import Flags
from datagen.replay.names import (
    MAPS,
    canonical_name,
    further_shapes,
    is_quantized,
    is_the_targets,
    name_problems,
    needed_shapes,
)
from datagen.replay.sizes import Sizes, sizes_of
from datagen.replay.vocabulary_maps import map_problems, target_ids
from datagen.replay.weight_files import read_weights
from schemas.contract import DraftContract, read_contract
from schemas.contract.shown import shown
from schemas.problem import Problem

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, eq=False)
class DraftCheckpoint:
    """A draft as its folder holds it; weights keep the dtype of the file."""

    layout: Literal["speculators", "sglang"]
    config: Mapping[str, Any]
    contract: DraftContract
    flags: Flags
    """The flags that the config states."""
    sizes: Sizes
    weights: Mapping[str, Tensor]
    """By canonical name; `embed_tokens.weight` and `lm_head.weight` only where the draft has its own."""
    d2t: Tensor | None
    """int64 `[D]`: target id minus draft id."""
    t2d: Tensor | None
    """bool `[V]`: the target ids that the draft can propose."""
    notes: tuple[Problem, ...] = field(default=())
    """What a person should know of it; nothing that keeps it from being run."""

    @property
    def width(self) -> int:
        """Return the hidden size H of the draft."""
        return self.sizes.hidden_size

    @property
    def n_layers(self) -> int:
        """Return the number of decoder layers."""
        return self.sizes.n_layers

    @property
    def n_slots(self) -> int:
        """Return K, the slots of the `fc` input."""
        return int(self.weights["fc.weight"].shape[1]) // self.sizes.slot_width

    @property
    def target_ids(self) -> Tensor:
        """Return the target id of each draft id, int64 `[D]`."""
        return target_ids(self.d2t, self.sizes.draft_vocab_size)


def read_draft(folder: Path) -> DraftCheckpoint:
    """Return the draft in `folder` (config.json beside its weights).

    Raises `CheckpointError` with all problems at once: no such folder, a broken config, files that are cut
    or pickled, weights that are missing, unknown, quantized, of another shape or not finite, wrong
    vocabulary maps.
    """
    problems: list[Problem] = []
    config = _read_config(folder, problems)
    named, file_problems = read_weights(folder) if folder.is_dir() else ({}, [])
    problems += file_problems
    if not config:
        # Without it nothing can be said of the weights.
        raise _refusal(folder, problems)
    contract, said = read_contract(config)
    problems += [problem for problem in said if problem.severity == "error"]
    sizes = sizes_of(config, contract)
    weights = _canonical(named, problems)
    maps = {name: weights.pop(name, None) for name in MAPS}
    flags = Flags.of(contract)
    if isinstance(sizes, tuple):
        problems += sizes
    elif named:
        problems += _weight_problems(weights, contract, sizes, flags)
        problems += map_problems(maps["d2t"], maps["t2d"], sizes)
    if problems or isinstance(sizes, tuple):
        raise _refusal(folder, problems)
    notes = [problem for problem in said if problem.severity == "note"]
    return DraftCheckpoint(
        layout="speculators" if contract.layout == "speculators" else "sglang",
        config=config,
        contract=contract,
        flags=flags,
        sizes=sizes,
        weights=weights,
        d2t=None if maps["d2t"] is None else maps["d2t"].to(torch.int64),
        t2d=None if maps["t2d"] is None else maps["t2d"].to(torch.bool),
        notes=(*notes, *_notes(contract, weights)),
    )


def _refusal(folder: Path, problems: list[Problem]) -> CheckpointError:
    return CheckpointError(f"{folder.name or folder} is not a draft that can be replayed", problems)


def _read_config(folder: Path, problems: list[Problem]) -> dict[str, Any]:
    file = folder / "config.json"
    repair = "give the draft's folder: config.json beside its weights"
    if not folder.is_dir():
        message = f"expected a folder, got {'a file' if folder.exists() else 'nothing'}"
        problems.append(Problem(where=str(folder), kind="folder", message=message, repair=repair))
        return {}
    try:
        config = json.loads(file.read_bytes())
    except FileNotFoundError:
        message = "expected config.json in the folder, got none"
        problems.append(Problem(where=str(folder), kind="config", message=message, repair=repair))
        return {}
    except (OSError, ValueError, RecursionError) as error:
        message = (
            f"expected JSON, got {str(error).splitlines()[0][:120] if str(error) else type(error).__name__}"
        )
        problems.append(Problem(where="config.json", kind="config", message=message, repair=repair))
        return {}
    if not isinstance(config, dict) or not config:
        message = f"expected a JSON object that describes a draft, got {shown(config)}"
        problems.append(Problem(where="config.json", kind="config", message=message, repair=repair))
        return {}
    return config


def _canonical(named: Mapping[str, Tensor], problems: list[Problem]) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for name, tensor in named.items():
        canonical = canonical_name(name)
        if canonical in weights:
            problems.append(
                Problem(
                    where=canonical,
                    kind="weight_twice",
                    message=f"expected it under one name, got {shown(name)} beside another of the same",
                    repair="keep the one that was trained",
                )
            )
        if not is_the_targets(canonical):
            weights[canonical] = tensor
    return weights


def _weight_problems(
    weights: Mapping[str, Tensor], contract: DraftContract, sizes: Sizes, flags: Flags
) -> list[Problem]:
    if is_quantized(weights):
        message = "expected weights in float32, bfloat16 or float16, got a quantized draft"
        return [
            Problem(
                where="weights", kind="quantized", message=message, repair="replay the draft it was made of"
            )
        ]
    fc = weights.get("fc.weight")
    width = fc.shape[1] if fc is not None and fc.ndim == 2 else 0
    n_slots = width // sizes.slot_width
    problems = []
    if fc is not None and (n_slots < 1 or width % sizes.slot_width):
        problems.append(_slots(width, sizes))
        n_slots = contract.shape.n_slots or 3
    elif contract.shape.n_slots is not None and n_slots != contract.shape.n_slots:
        problems.append(_other_slots(n_slots, contract.shape.n_slots))
    model_type = contract.model_type or ("qwen3" if contract.layout == "speculators" else "llama")
    needed = needed_shapes(sizes, flags, n_slots or contract.shape.n_slots or 3, model_type)
    further = further_shapes(sizes, n_slots or 3, needed)
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if problems:
        found.pop("fc.weight", None)
        needed.pop("fc.weight", None)
        further["fc.weight"] = ()
    problems += name_problems(found, needed, further)
    known = {**needed, **further}
    problems += [
        found for name, one in weights.items() if name in known for found in _value_problems(name, one)
    ]
    return problems


def _value_problems(name: str, tensor: Tensor) -> list[Problem]:
    if tensor.dtype not in _FLOATS:
        got = str(tensor.dtype).removeprefix("torch.")
        message = f"expected float32, bfloat16 or float16, got {got}"
        return [Problem(where=name, kind="dtype", message=message)]
    n_bad = int((~tensor.isfinite()).sum())
    if not n_bad:
        return []
    return [
        Problem(
            where=name,
            kind="not_finite",
            message=f"expected finite values, got {n_bad:,} of {tensor.numel():,} that are not",
            repair="speculators marks weights that were never loaded with NaN: load them, then export again",
        )
    ]


def _slots(width: int, sizes: Sizes) -> Problem:
    return Problem(
        where="fc.weight",
        kind="width",
        message=f"expected a width that is a multiple of {sizes.slot_width}, a slot's width, got {width}",
        repair="write the target's hidden size as target_hidden_size, if the draft's own is another",
    )


def _other_slots(got: int, said: int) -> Problem:
    return Problem(
        where="fc.weight",
        kind="width",
        message=f"expected {said} slots by config.json, got room for {got}",
        repair="the config and the weights are of different drafts: take both from one export",
    )


def _notes(contract: DraftContract, weights: Mapping[str, Tensor]) -> list[Problem]:
    notes = []
    if contract.norms.norm_before_residual is None:
        notes.append(
            _note("norm_before_residual", "not in config.json: taken for false, as speculators does")
        )
    for flag, weight in (("norm_before_fc", "input_norm.weight"), ("fc_norm", "fc_norm.0.weight")):
        if weight in weights and not getattr(contract.norms, flag):
            notes.append(_note(flag, f"not on in config.json, but the checkpoint has {weight}"))
    if "lm_head.weight" not in weights:
        notes.append(_note("lm_head.weight", "not in the checkpoint: the target's rows are taken"))
    return notes


def _note(where: str, message: str) -> Problem:
    return Problem(where=where, kind="note", severity="note", message=message)
