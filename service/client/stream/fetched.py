"""What was fetched for one pack, as torch tensors: samples end to end, in the wiring's order, as stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from schemas.problem import Problem
from schemas.wiring import Wiring
from service.client.errors import ProtocolError
from service.client.plan import Pack
from service.client.rows import Rows
from service.client.source import Source
from service.client.stream.memory import Memory

DTYPES: Mapping[str, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}


@dataclass(frozen=True, eq=False)
class Fetched:
    """`tensors` are `[sum t, H]` by name, in the wiring's order; ids int64 and mask bool `[sum t]`.

    `offsets` say where each sample begins, `[n + 1]`. Tensors are views of the memory that was read into.
    """

    sample_ids: tuple[str, ...]
    offsets: tuple[int, ...]
    tensors: dict[str, torch.Tensor]
    input_ids: torch.Tensor
    loss_mask: torch.Tensor

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sample."""
        return [end - first for first, end in pairwise(self.offsets)]


def fetch(source: Source, wiring: Wiring, pack: Pack, memory: Memory) -> Fetched:
    """Read a pack's samples into memory of a batch's own.

    Raises what the source raises, and `ProtocolError` when it hands out other samples than were asked for.
    """
    names = [*wiring.tensors, "input_ids", "loss_mask"]
    taken: list[torch.Tensor] = []

    def buffer(n_bytes: int) -> NDArray[np.uint8]:
        taken.append(memory.take(n_bytes))
        return taken[-1].numpy()

    offsets = (0, *np.cumsum(pack.lengths).tolist())
    if pack.is_cut:
        window = slice(0, int(pack.lengths[0]))
        rows = source.tensors(pack.sample_ids[0], names, window, out=buffer)
    else:
        rows = source.batch(pack.sample_ids, names, out=buffer)
    _check(rows, pack.sample_ids, offsets)
    tensors = {name: _tensor(rows, name, taken) for name in wiring.tensors}
    return Fetched(
        sample_ids=rows.sample_ids,
        offsets=offsets,
        tensors=tensors,
        input_ids=torch.from_numpy(rows.tokens["input_ids"].astype(np.int64)),
        loss_mask=torch.from_numpy(rows.tokens["loss_mask"].astype(np.bool_)),
    )


def _check(rows: Rows, ids: list[str], offsets: tuple[int, ...]) -> None:
    if list(rows.sample_ids) == ids and tuple(rows.offsets.tolist()) == offsets:
        return
    got = f"{', '.join(rows.sample_ids)} with rows from {rows.offsets.tolist()}"
    message = f"expected {', '.join(ids)} with rows from {[*offsets]}, got {got}"
    problem = Problem(where="batch", kind="samples", message=message[:2000])
    raise ProtocolError("other samples than were asked for", [problem])


def _tensor(rows: Rows, name: str, taken: list[torch.Tensor]) -> torch.Tensor:
    """Return a tensor as a view of the memory it was read into: that of torch, which knows who uses it."""
    array = rows.tensors[name]
    dtype = DTYPES[rows.dtypes[name]]
    for memory in taken:
        first = array.ctypes.data - memory.data_ptr()
        if 0 <= first <= len(memory) - array.nbytes and first % dtype.itemsize == 0:
            return memory[first : first + array.nbytes].view(dtype).view(array.shape)
    return torch.from_numpy(array.view(np.uint8).reshape(-1).copy()).view(dtype).view(array.shape)
