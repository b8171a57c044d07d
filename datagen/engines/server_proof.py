"""Holds a server's files against what is declared of them, on one short prompt, before any capture."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from datagen.engines.errors import EngineError
from datagen.engines.loading import TORCH_DTYPES
from datagen.engines.server_asking import Asking, Told
from datagen.engines.settings import EngineSettings
from datagen.engines.target_head import TargetHead
from schemas.boundary import EMBED, FINAL, name_of
from schemas.problem import Problem
from schemas.target import Target

PROBE_TOKENS = 24
MIN_AGREEMENT = 0.9
"""Of the probe's positions; the layer before `final` agrees on about half, other weights on none."""


def prove(
    asking: Asking, settings: EngineSettings, target: Target, head: TargetHead | None, without: str
) -> Mapping[str, str]:
    """Return what a run records: what was proven of the server's slots, and what is taken on trust.

    `head` is `None` where the model's files do not tell its ends, `without` says why. Raises `EngineError`
    with everything that does not hold.
    """
    step = max(1, target.vocab_size // (PROBE_TOKENS + 1))
    ids = ((np.arange(PROBE_TOKENS) + 1) * step % target.vocab_size).astype(np.int32)
    told = asking.ask(ids, with_argmax=True)
    declared = sorted(set(settings.openai.layer_ids))
    problems = _shape_problems(told, settings, target, len(declared))
    if problems:
        raise EngineError("the server captures something else", problems)
    proven: list[str] = []
    if head is not None and 0 in declared and head.embedding_problem is None:
        problems += _embed_problems(told, head, ids, declared.index(0))
        proven.append(EMBED)
    if head is not None and target.n_layers in declared:
        problems += _final_problems(told, head, declared.index(target.n_layers))
        proven.append(FINAL)
    if problems:
        raise EngineError("the server captures something else", problems)
    names = [name_of(one, target.n_layers) for one in declared]
    trusted = [name for name in names if name not in proven]
    said = {
        "layer_ids": ", ".join(map(str, declared)),
        "proven": ", ".join(proven) or "nothing",
        "unproven": ", ".join(trusted) or "nothing",
        "final_normed": "the norm of the model's files on final, here",
    }
    return {**said, "ends": without} if head is None else said


def _shape_problems(told: Told, settings: EngineSettings, target: Target, n_slots: int) -> list[Problem]:
    problems = []
    _, slots, width = told.states.shape
    if slots != n_slots:
        where = "engine.openai.layer_ids"
        message = f"expected {n_slots} slots as declared, got {slots} in the server's file"
        problems.append(Problem(where=where, kind="states", message=message))
    if width != target.hidden_size:
        message = f"expected the width {target.hidden_size} of {target.model_id}, got {width}"
        problems.append(Problem(where="engine.model", kind="states", message=message))
    if told.states.dtype != TORCH_DTYPES[settings.dtype]:
        got = str(told.states.dtype).removeprefix("torch.")
        message = f"expected {settings.dtype}, got states of {got} from the server"
        problems.append(Problem(where="engine.dtype", kind="dtype", message=message))
    return problems


def _embed_problems(told: Told, head: TargetHead, ids: NDArray[np.int32], slot: int) -> list[Problem]:
    if torch.equal(told.states[:, slot], head.embed(ids)):
        return []
    message = f"expected the rows of the model's embedding table in slot {slot}, got others"
    repair = "the server has another model, or captures other layers than engine.openai.layer_ids"
    return [Problem(where=EMBED, kind="states", message=message, repair=repair)]


def _final_problems(told: Told, head: TargetHead, slot: int) -> list[Problem]:
    assert told.argmax is not None
    chosen = head.choose(told.states[:, slot].contiguous())
    agreeing = int((chosen == told.argmax).sum())
    if agreeing >= MIN_AGREEMENT * len(chosen):
        return []
    message = (
        f"expected argmax(lm_head(norm(final))) of slot {slot} to be the server's own choice on "
        f"{MIN_AGREEMENT:.0%} of {len(chosen)} positions, got {agreeing}"
    )
    repair = "the server has another model, or captures other layers than engine.openai.layer_ids"
    return [Problem(where=FINAL, kind="states", message=message, repair=repair)]
