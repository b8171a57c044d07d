"""A version as SpecForge's trainer takes it, sample by sample, without its feature files on disk.

A sample is what `normalize_offline_sample` of release 0.2.0 makes of the file that an export writes for the
same row, to the byte, and by the names that are trained on, which are not those of the files:

    hidden_state [1, T, K * H]   the draft's input side by side; a file calls it aux_hidden_state
    target       [1, T, H]       the last state behind the target's norm; a file calls it hidden_state
    input_ids, loss_mask, attention_mask   int64 [1, T]; the last token carries no loss

SpecForge's own collator pads and stacks samples, its model shifts them.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from datagen.store.trainer_rows import in_rows
from schemas.card import Card
from schemas.problem import Problem
from schemas.trainer_wiring import tensor_problems, trained_card, trainer_wiring
from service.trainers.errors import TrainerError
from service.trainers.held import KEY_VARIABLE, Held, open_held
from service.trainers.kept_memory import KeptMemory, keep_freed_memory

TRAINER = "specforge==0.2.0"
_DTYPES: Mapping[str, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}


class SpecForgeDataset(Dataset[dict[str, torch.Tensor]]):
    """The samples of a version, in the order of an export's rows; samples are cut to `max_len` tokens.

    Safe for a DataLoader's workers, forked or spawned. Reading raises what the store or the client raise:
    nothing is left out, and every byte's checksum is compared. `keep_memory` lets each process that reads
    samples keep what it frees: only where all of it is a trainer's.
    """

    def __init__(
        self,
        held: Held,
        card: Card,
        sample_ids: Sequence[str],
        max_len: int,
        notes: Sequence[Problem] = (),
        *,
        keep_memory: bool = False,
    ) -> None:
        """Hold what `open_specforge` opened."""
        if card.wiring.target is None:
            raise ValueError(f"expected a wiring with a target, got that of {card.wiring.title}")
        self.card = card
        """The target, the wiring and the version: what goes with the draft's checkpoint."""
        self.notes = tuple(notes)
        """What a person should know of dataset and wiring."""
        self.max_len = max_len
        self._held = held
        self._slots = (*card.wiring.fc, card.wiring.target.tensor)
        self._dtype = _DTYPES[held.facts.schema.tensor(card.wiring.fc[0]).dtype]
        # 32 bytes a sample: a list of texts would be copied page by page into every forked worker.
        self._ids = np.frombuffer(bytes.fromhex("".join(sample_ids)), np.uint8).reshape(-1, 32)
        self._keep_memory = keep_memory
        self._kept: KeptMemory | None = None

    def __getstate__(self) -> dict[str, Any]:
        # What is kept is a process's own.
        return self.__dict__ | {"_kept": None}

    def __len__(self) -> int:
        return len(self._ids)

    def sample_id(self, row: int) -> str:
        """Return which sample a row is; raises `IndexError` where there is none."""
        if not -len(self) <= row < len(self):
            raise IndexError(f"expected a row between 0 and {len(self) - 1}, got {row}")
        return bytes(self._ids[row]).hex()

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        if self._keep_memory:
            self._kept = self._kept or keep_freed_memory()
            self._keep_memory = self._kept is not None
        stack = self._held.stack(self.sample_id(row), self._slots, ("input_ids", "loss_mask"))
        if self._kept is not None:
            self._kept.bound(stack.states.nbytes)
        states = stack.states[: self.max_len]
        n_tokens, n_slots, width = states.shape
        mask = _long(stack.tokens["loss_mask"][: self.max_len])
        mask[0, -1] = 0
        return {
            "attention_mask": torch.ones_like(mask),
            "loss_mask": mask,
            "target": self._tensor(states[:, -1], (1, n_tokens, width)),
            "hidden_state": self._tensor(states[:, :-1], (1, n_tokens, (n_slots - 1) * width)),
            "input_ids": _long(stack.tokens["input_ids"][: self.max_len]),
        }

    def _tensor(self, states: NDArray[np.generic], shape: tuple[int, ...]) -> torch.Tensor:
        flat = np.ascontiguousarray(states).view(np.uint8).reshape(-1)
        return torch.from_numpy(flat).view(self._dtype).view(shape)


def open_specforge(
    source: str,
    *,
    fc: Sequence[str] | None = None,
    splits: Sequence[str] = (),
    max_len: int = 2048,
    key: str | None = None,
    direct: bool = True,
    keep_memory: bool = False,
) -> SpecForgeDataset:
    """Open `ROOT/DATASET[@VERSION]`, or `URL#DATASET[@VERSION]`, as SpecForge trains on it.

    Without `fc` it is what SpecForge takes by default; `splits` as for an export. A service is asked with
    `key`, by default that of `STRATA_KEY`; `direct` lets its files be read where they lie, if they can be.
    `keep_memory`, for batches over 32 MiB, lets the processes that read keep what they free, within a bound.
    Raises `TrainerError` with every problem of the wiring before a state is read: a dataset without `final`,
    or without the target's norm beside it, is one. Raises what the store or the client raise where there is
    no such version.
    """
    if max_len < 1:
        raise ValueError(f"expected max_len of at least 1, got {max_len}")
    held = open_held(source, key or os.environ.get(KEY_VARIABLE) or None, direct=direct)
    card, notes = _judged(held, fc)
    rows, _ = in_rows(held.groups(tuple(splits)))
    if not rows:
        message = f"expected samples in {' and '.join(splits) or 'the version'}, got none"
        raise TrainerError(
            "there is nothing to train on", [Problem(where="splits", kind="empty", message=message)]
        )
    return SpecForgeDataset(
        held, card, [row.sample_id for row in rows], max_len, notes, keep_memory=keep_memory
    )


def _judged(held: Held, fc: Sequence[str] | None) -> tuple[Card, Sequence[Problem]]:
    facts = held.facts
    problems = tuple(tensor_problems(facts.schema.target, fc or ()))
    if not problems:
        wiring, report, problems = trainer_wiring(facts, TRAINER, fc, None)
        card = trained_card(report) if wiring is not None else None
        if card is not None:
            return card, report.notes
    raise TrainerError(f"{facts.reference} is not what {TRAINER} is to take", problems)


def _long(values: NDArray[np.generic]) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.int64))[None]
