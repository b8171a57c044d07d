"""A draft on the stored states of a case, fed as a candidate says; beside it the target's own lm_head."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import kl_div

from datagen.adapters.tensor_arrays import tensor_of
from datagen.engines.target_head import LOGIT_BYTES, TargetHead
from datagen.replay.candidates import Change, Inputs
from datagen.replay.draft import Draft
from datagen.replay.flags import FLAG_NAMES, Flags
from datagen.replay.leaning import Spread
from datagen.replay.measuring import Case, Run, Tensors
from datagen.replay.score import Ids, Labels
from schemas.boundary import FINAL, FINAL_NORMED
from schemas.contract import Rope
from schemas.wiring import TargetRole

NOT_LABELLED, NOT_ASKED = -1, -2
_WEIGHT_OF = {"norm_before_fc": "input_norm.weight", "fc_norm": "fc_norm.0.weight"}


class DraftRunner:
    """Runs one draft beside its target; keeps what a target says of a case, which many candidates ask."""

    def __init__(self, draft: Draft, head: TargetHead) -> None:
        self._drafts: dict[tuple[Change, ...], Draft] = {(): draft}
        self._head = head
        self._target_ids = draft.checkpoint.target_ids
        self._labels: dict[tuple[str, TargetRole], Labels] = {}
        self._likely: tuple[tuple[str, TargetRole], Tensor] | None = None
        self.n_slots = draft.checkpoint.n_slots
        self.changes = changes_of(draft)

    def labels(self, case: Case, role: TargetRole) -> Labels:
        """Return what a target says at each labelled state, its best token of all and of those known."""
        key = case.sample_id, role
        if key not in self._labels:
            self._labels[key] = self._labels_of(case, role)
        return self._labels[key]

    def _labels_of(self, case: Case, role: TargetRole) -> Labels:
        states, norm = self._target_states(case, role)
        best, known = [], []
        for some in torch.split(states, max(1, LOGIT_BYTES // (4 * len(self._head.lm_head)))):
            logits = self._head.logits(some, norm=norm)
            best.append(logits.argmax(-1))
            known.append(self._target_ids[logits[:, self._target_ids].argmax(-1)])
        return Labels(_placed(best, case), _placed(known, case))

    def run(self, case: Case, inputs: Inputs, steps: int, loss_of: TargetRole | None) -> Run:
        """Run the draft so many steps deep; the divergence is from the target `loss_of`."""
        n_pairs = len(case.ids) - 1
        ids = torch.from_numpy(case.ids[1:])
        rows = torch.arange(n_pairs)[case.pairs]
        states = self._states(case, inputs, n_pairs)
        outputs = self._draft(inputs.changes).chain(
            ids, states, torch.arange(1, n_pairs + 1), steps, rows=rows
        )
        proposed: list[Ids] = []
        loss = None
        for step, output in enumerate(outputs):
            if step == 0 and loss_of is not None:
                loss = self._loss(case, loss_of, output.logits)
            tokens = np.full(n_pairs, NOT_ASKED, np.int64)
            tokens[case.pairs] = self._target_ids[output.logits.argmax(-1)].numpy()
            proposed.append(tokens)
        return Run(tuple(proposed), loss)

    def spread(self, case: Case, inputs: Inputs, roles: Sequence[TargetRole]) -> Spread:
        """Return probabilities of the tokens that the draft knows, summed over the pairs of `_counted`."""
        n_pairs = len(case.ids) - 1
        counted = _counted(case)
        ids, positions = torch.from_numpy(case.ids[1:]), torch.arange(1, n_pairs + 1)
        output = self._draft(inputs.changes).forward(
            ids, self._states(case, inputs, n_pairs), positions, rows=counted
        )
        expected = {role: self._expected(case, role)[counted + 1 - case.labelled.start] for role in roles}
        best = output.logits.argmax(-1)
        return Spread(
            output.logits.softmax(-1).sum(0).numpy(),
            {role: likely.exp().sum(0).numpy() for role, likely in expected.items()},
            {role: int((likely.argmax(-1) == best).sum()) for role, likely in expected.items()},
        )

    def _expected(self, case: Case, role: TargetRole) -> Tensor:
        """Return a target's log-probabilities of the tokens that the draft knows, at each labelled state."""
        states, norm = self._target_states(case, role)
        return self._head.logits(states, norm=norm, ids=self._target_ids).log_softmax(-1)

    def _draft(self, changes: tuple[Change, ...]) -> Draft:
        if changes not in self._drafts:
            plain = self._drafts[()]
            self._drafts[changes] = plain.with_flags(changed(plain.flags, changes))
        return self._drafts[changes]

    def _states(self, case: Case, inputs: Inputs, n_pairs: int) -> Tensor:
        """Return the `fc` input of each pair, `[T-1, K*H]`: rows moved, another sample's, or zeros."""
        places = torch.arange(n_pairs).add(inputs.moved).clamp(0, n_pairs)
        if inputs.source == "another sample":
            other = case.other()
            slots = [self._tensor(other, name) for name in inputs.fc]
            places = torch.arange(n_pairs) % len(slots[0])
        else:
            slots = [self._tensor(case.tensors, name) for name in inputs.fc]
        states = torch.cat([slot[places].float() for slot in slots], dim=-1)
        return torch.zeros_like(states) if inputs.source == "zeros" else states

    def _target_states(self, case: Case, role: TargetRole) -> tuple[Tensor, bool]:
        """Return the labelled rows of a target, and whether the head is to norm them."""
        name, norm = role.tensor, role.applies_norm
        if name == FINAL and norm and FINAL not in case.tensors:
            name, norm = FINAL_NORMED, False
        return self._tensor(case.tensors, name)[case.labelled], norm

    def _tensor(self, tensors: Tensors, name: str) -> Tensor:
        """Return `[T, H]`; `final_normed` is made of `final` where it is not stored."""
        if name == FINAL_NORMED and name not in tensors:
            return self._head.norm(tensor_of(tensors[FINAL]))
        return tensor_of(tensors[name])

    def _loss(self, case: Case, role: TargetRole, logits: Tensor) -> tuple[float, int]:
        """Return the divergence of the draft's from a target's distribution over the tokens it knows.

        Of the pairs that speculators counts, as its own loss is.
        """
        if self._likely is None or self._likely[0] != (case.sample_id, role):
            self._likely = (case.sample_id, role), self._expected(case, role)
        counted = _counted(case)
        wanted = self._likely[1][counted + 1 - case.labelled.start]
        got = logits[counted - case.pairs.start].log_softmax(-1)
        apart = kl_div(got, wanted, reduction="sum", log_target=True)
        return float(apart), len(counted)


def _counted(case: Case) -> Tensor:
    """Return the pairs that speculators counts at step 1: their token after the next is trained."""
    return torch.from_numpy(np.flatnonzero(case.mask[1:]))


def _placed(pieces: Sequence[Tensor], case: Case) -> Ids:
    """Return the tokens of the labelled states at their places, `[T]`."""
    tokens = np.full(len(case.ids), NOT_LABELLED, np.int64)
    tokens[case.labelled] = torch.cat(list(pieces)).numpy()
    return tokens


def changes_of(draft: Draft) -> tuple[Change, ...]:
    """Return what of a draft's contract can be run otherwise: norms off, or on where their weights are there.

    RoPE and window only where the config says something of them.
    """
    flags, weights = draft.flags, draft.checkpoint.weights
    found = [
        Change(name, not getattr(flags, name))
        for name in FLAG_NAMES
        if getattr(flags, name) or name not in _WEIGHT_OF or _WEIGHT_OF[name] in weights
    ]
    if flags.rope.theta is not None or flags.rope.scaling:
        found.append(Change("rope"))
    if flags.window is not None:
        found.append(Change("window"))
    return tuple(found)


def changed(flags: Flags, changes: Sequence[Change]) -> Flags:
    """Return the flags with these changes made."""
    for change in changes:
        if change.name == "rope":
            flags = replace(flags, rope=Rope(theta=10_000.0))
        elif change.name == "window":
            flags = replace(flags, window=None)
        elif getattr(flags, change.name) != change.on:
            flags = flags.flipped(change.name)
    return flags
