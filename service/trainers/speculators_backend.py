"""The backend `strata` of speculators: its trainer asks for a row's states, and gets them from a dataset.

It is registered in hs_connectors' own plug-in point, and gives what its `FileTransfer` gives for the same
row: `hidden_states` `[T, K, H]` in the wiring's order, the target last, and `token_ids` `[T]` int64. What
cannot be read is an error that names it, never a sample left out. Source: `hs_connectors/transfer.py` and
`train/data.py` of release 0.9.0.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hs_connectors import HiddenStatesBackend, HiddenStatesTransfer
from numpy.typing import NDArray

from schemas.problem import Problem
from service.client.rows import BITS
from service.client.stream.memory import Memory
from service.trainers.errors import TrainerError
from service.trainers.held import KEY_VARIABLE, Held, open_held
from service.trainers.kept_memory import KeptMemory, keep_freed_memory
from service.trainers.prepared import open_prepared, read_sample_ids

NAME = "strata"
SOURCE_FLAG = "--strata-source"
DTYPES: Mapping[str, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}
BUFFERS_KEPT = 16
ROWS_AT_ONCE = 16
"""In one request, at most."""


class StrataTransfer(HiddenStatesTransfer):  # type: ignore[misc, unused-ignore]
    """Gives the rows of a prepared folder; safe for threads, forked and spawned workers.

    `keep_memory` lets each process that reads rows keep what it frees: only where all of it is a trainer's.
    """

    def __init__(self, held: Held, folder: Path, *, keep_memory: bool = False) -> None:
        prepared = open_prepared(folder)
        self._held = held
        self._folder = prepared.folder
        self._slots = prepared.slots
        self._n_rows = prepared.n_rows
        self._keep_memory = keep_memory
        self._begin()

    def _begin(self) -> None:
        """Make what each process has of its own."""
        self._sample_ids: NDArray[np.uint8] | None = None
        self._kept: KeptMemory | None = None
        self._memory = Memory(kept=BUFFERS_KEPT)
        self._expected: dict[int, dict[str, torch.Tensor]] = {}
        _hear_of_batches()

    def __getstate__(self) -> dict[str, Any]:
        # A worker reads the list of rows by itself: that costs less than to send it.
        own = ("_sample_ids", "_kept", "_memory", "_expected")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def get_cached(self, file_idx: int) -> dict[str, torch.Tensor]:
        """Return a row's states and token ids; raises what the dataset raises where they cannot be read."""
        expected = self._expected.pop(file_idx, None)
        return expected if expected is not None else self._read([file_idx])[0]

    def expect(self, rows: Sequence[int]) -> None:
        """Ask for a batch's rows in few requests, for `get_cached` to give each once; raises as that.

        Nothing is done where rows come by no request. What was expected before is dropped.
        """
        self._expected.clear()
        for first in range(0, len(rows) if self._held.asks else 0, ROWS_AT_ONCE):
            some = rows[first : first + ROWS_AT_ONCE]
            self._expected.update(zip(some, self._read(some), strict=True))

    def _read(self, rows: Sequence[int]) -> list[dict[str, torch.Tensor]]:
        made: list[torch.Tensor] = []
        ids = [self._sample_id(row) for row in rows]
        stacks = self._held.stacks(ids, self._slots, ("input_ids",), out=partial(self._states, made))
        if self._kept is not None:
            self._kept.bound(sum(tensor.nbytes for tensor in made))
        # Those before the last were made for an answer that was asked for again.
        return [
            {"hidden_states": tensor, "token_ids": torch.from_numpy(_long(stack.tokens["input_ids"]))}
            for tensor, stack in zip(made[-len(rows) :], stacks, strict=True)
        ]

    def _states(
        self, made: list[torch.Tensor], n_tokens: int, n_slots: int, width: int, dtype: str
    ) -> NDArray[np.generic]:
        """Add a tensor to those that were made, and return it as numpy knows it."""
        made.append(self._memory.empty((n_tokens, n_slots, width), DTYPES[dtype]))
        return _bits(made[-1], dtype)

    def get_generated(self, hs_transfer_params: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Refuse: what a dataset holds was made before."""
        message = f"expected rows of a dataset, got a request for generated states: {hs_transfer_params}"
        problem = Problem(where="--on-missing", kind="generated", message=message, repair="say raise")
        raise TrainerError("nothing is generated while training from Strata", [problem])

    def _sample_id(self, row: int) -> str:
        if self._sample_ids is None:
            if self._keep_memory:
                self._kept = keep_freed_memory()
            self._sample_ids = read_sample_ids(self._folder, self._n_rows)
        if not 0 <= row < len(self._sample_ids):
            raise IndexError(f"expected a row between 0 and {len(self._sample_ids) - 1}, got {row}")
        return bytes(self._sample_ids[row]).hex()


def _bits(states: torch.Tensor, dtype: str) -> NDArray[np.generic]:
    """Return the same memory as numpy knows it: it has no bfloat16."""
    flat = states.view(torch.uint8).numpy()
    return flat.view(BITS[dtype])


def _long(values: NDArray[np.generic]) -> NDArray[np.int64]:
    return values.astype(np.int64)


def _hear_of_batches() -> None:
    """Let the trainer's dataset, where it is loaded, say which rows a batch is of before it takes them.

    torch's loader hands a batch's indices to a dataset's `__getitems__` where it has one; the trainer's has
    none, and asks for row after row. Source: `torch/utils/data/_utils/fetch.py`.
    """
    data = sys.modules.get("speculators.train.data")
    if data is not None:
        data.ArrowDataset.__getitems__ = _items


def _items(dataset: Any, indices: Sequence[int]) -> list[Any]:
    if isinstance(dataset.transfer, StrataTransfer):
        dataset.transfer.expect([dataset._map_to_file_idx(index) for index in indices])
    return [dataset[index] for index in indices]


class StrataBackend(HiddenStatesBackend):  # type: ignore[misc, unused-ignore]
    """How speculators' command line knows of it."""

    @staticmethod
    def add_train_args(parser: argparse.ArgumentParser) -> None:
        """Add the one flag: the dataset version. A key is never one, since the trainer records its flags."""
        parser.add_argument(
            SOURCE_FLAG,
            type=str,
            default=None,
            help="The dataset version, ROOT/DATASET@VERSION or URL#DATASET@VERSION. Set by strata.",
        )

    @staticmethod
    def add_launch_args(parser: argparse.ArgumentParser) -> None:
        """Add nothing: no states are generated for it."""

    @staticmethod
    def from_train_args(args: argparse.Namespace, data_path: str) -> StrataTransfer:
        """Return the rows of the folder at `data_path`."""
        if not args.strata_source:
            message = f"expected {SOURCE_FLAG}, got none"
            problem = Problem(where=SOURCE_FLAG, kind="missing", message=message, repair="see strata --help")
            raise TrainerError("no dataset to train from", [problem])
        held = open_held(args.strata_source, os.environ.get(KEY_VARIABLE) or None)
        return StrataTransfer(held, Path(data_path), keep_memory=True)

    @staticmethod
    def build_kv_transfer_config(args: argparse.Namespace) -> dict[str, Any]:  # noqa: ARG004
        """Refuse: vLLM is not asked to write into a dataset here."""
        raise TrainerError("strata run makes datasets; vLLM is not launched for one")


def register() -> None:
    """Make the backend known; again is no error."""
    if NAME not in HiddenStatesBackend.registry:
        HiddenStatesBackend.register(NAME)(StrataBackend)
