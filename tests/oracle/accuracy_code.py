"""How the trainers themselves count what their draft gets right, by their own released code.

T states of one sample, S teacher-forced steps. Logits of a draft are `[T-1, D]` a step, pair i's of state i
and token i+1; `target` is `[T, V]`, what the target says at each state, and `known` the D target ids that the
draft knows, ascending. Answers are (right, counted) a step.
"""

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from tests.oracle.borrow import borrow
from tests.oracle.stream import Owner
from tests.oracle.wheels import source

Counts = list[tuple[int, int]]


def by_speculators(
    version: str, logits: Sequence[Tensor], target: Tensor, known: Tensor, mask: Tensor
) -> Counts:
    """What its `compute_metrics` counts of a sample that its `shift_batch` shifted, without conditions."""
    package = source("speculators", version)
    names = ("input_ids", "hidden_states", "verifier_last_hidden_states", "loss_mask", "position_ids")
    batch = dict.fromkeys(names, torch.arange(len(mask))) | {"lengths": torch.tensor([len(mask)])}
    batch |= {"verifier_last_hidden_states": target[:, known], "loss_mask": mask}
    shifted = borrow(package / "models" / "eagle3" / "data.py", "shift_batch")(batch)
    given = {
        "compute_accuracy_single_step": borrow(
            package / "models" / "metrics.py", "compute_accuracy_single_step"
        ),
        "compound_loss": lambda *_, **__: (torch.zeros(()), {}),
    }
    measure = borrow(package / "models" / "eagle3" / "metrics.py", "compute_metrics", given)
    targets, counted = shifted["verifier_last_hidden_states"][None], shifted["loss_mask"][None]
    found = []
    for step, proposed in enumerate(logits):
        _, told = measure(proposed[None], targets, counted, None, step, 1.0, {})
        found.append((int(told[f"full_acc_{step}_sum"]), int(told[f"full_acc_{step}_total"])))
    return found


def by_specforge(
    version: str, logits: Sequence[Tensor], target: Tensor, known: Tensor, mask: Tensor
) -> Counts:
    """What its training model's own `forward` counts of a sample that its target head prepared.

    Its logits have a row for the last state too, which has no token after it: there they are zeros.
    """
    package = source("specforge", version)
    padding = borrow(package / "utils.py", "padding")
    head = borrow(
        package / "modeling" / "target" / "target_head.py", "TargetHead.preprocess", {"padding": padding}
    )
    ids, shifted, loss_mask = head(None, torch.arange(len(mask))[None], target[None], mask[None])
    model = package / "algorithms" / "eagle3" / "model.py"
    draft = _draft(logits, target.shape[1], known)
    given: dict[str, Any] = {
        "_compute_loss_and_acceptance_rate": lambda **_: (torch.zeros(()), torch.zeros(()))
    }
    counts = borrow(model, "OnlineEagle3Model._acc_and_loss", given)
    view = borrow(
        package / "core" / "eagle3_adapters.py", "SdpaLikeAdapter.step_view", {"StepState": SimpleNamespace}
    )
    adapter = Owner(
        step_view=partial(view, None),
        reduce_metrics=lambda local_correct, local_denom: (local_correct, local_denom),
    )
    trained = Owner(
        draft_model=draft, length=len(logits), attention_backend="sdpa", _make_adapter=lambda: adapter
    )
    trained.__dict__["_acc_and_loss"] = partial(counts, trained)
    forward = borrow(model, "OnlineEagle3Model.forward", {"padding": padding})
    _, _, _, right, counted, *_ = forward(
        trained, ids, torch.ones(1, len(mask)), shifted, loss_mask, torch.zeros(1, len(mask), 1)
    )
    return [(int(one), int(whole)) for one, whole in zip(right, counted, strict=True)]


def _draft(logits: Sequence[Tensor], vocabulary: int, known: Tensor) -> Owner:
    """Return a draft that says `logits`, a step after the other."""
    steps = iter([torch.cat([one, torch.zeros(1, one.shape[1])])[None] for one in logits])
    t2d = torch.zeros(vocabulary, dtype=torch.bool)
    t2d[known] = True
    return Owner(
        t2d=t2d,
        d2t=known - torch.arange(len(known)),
        project_hidden_states=lambda states: states,
        embed_input_ids=lambda ids: torch.zeros(*ids.shape, 1),
        backbone=lambda **given: given["hidden_states"],
        compute_logits=lambda _: next(steps),
    )
