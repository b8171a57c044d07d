"""Files of hidden states as other libraries write them, of a small model's own states."""

import gzip
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

States = Mapping[str, NDArray[np.generic]]
Write = Callable[[Path, Sequence[int], States, Sequence[str]], Path]


def as_torch(rows: NDArray[np.generic]) -> torch.Tensor:
    """Return rows as a tensor of their dtype."""
    if rows.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(rows.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(rows.copy())


def stacked(file: Path, ids: Sequence[int], states: States, names: Sequence[str]) -> Path:
    """speculators since v0.4.0: `[T, K, H]` and `token_ids`."""
    slots = torch.stack([as_torch(states[name]) for name in names], dim=1)
    file = file.with_suffix(".safetensors")
    save_file({"hidden_states": slots.contiguous(), "token_ids": torch.tensor(ids)}, file)
    return file


def listed(file: Path, ids: Sequence[int], states: States, names: Sequence[str]) -> Path:
    """speculators before: a dict with a list of `[T, H]`."""
    file = file.with_suffix(".pt")
    slots = [as_torch(states[name]) for name in names]
    mask = torch.ones(len(ids), dtype=torch.int64)
    torch.save({"input_ids": torch.tensor(ids), "hidden_states": slots, "loss_mask": mask}, file)
    return file


def beside(file: Path, ids: Sequence[int], states: States, names: Sequence[str]) -> Path:
    """SpecForge: all but the last side by side in `aux_hidden_state`, an axis of one sample before them."""
    file = file.with_suffix(".ckpt")
    torch.save(specforge(ids, states, names), file)
    return file


def zipped(file: Path, ids: Sequence[int], states: States, names: Sequence[str]) -> Path:
    """SpecForge's compressed form."""
    file = file.with_suffix(".ckpt.gz")
    content = io.BytesIO()
    torch.save(specforge(ids, states, names), content)
    file.write_bytes(gzip.compress(content.getvalue(), 1))
    return file


def specforge(ids: Sequence[int], states: States, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Return SpecForge's record."""
    *inputs, last = (as_torch(states[name]) for name in names)
    return {
        "input_ids": torch.tensor(ids),
        "loss_mask": torch.ones(len(ids), dtype=torch.int64),
        "hidden_state": last[None],
        "aux_hidden_state": torch.cat(inputs, dim=-1)[None],
    }


def modelopt(file: Path, ids: Sequence[int], states: States, names: Sequence[str]) -> Path:
    """ModelOpt: the same side by side, without that axis."""
    file = file.with_suffix(".pt")
    *inputs, last = (as_torch(states[name]) for name in names)
    record = {
        "input_ids": torch.tensor(ids),
        "hidden_states": last,
        "aux_hidden_states": torch.cat(inputs, dim=-1),
        "conversation_id": file.stem,
        "hidden_states_prenorm": True,
    }
    torch.save(record, file)
    return file


def named(file: Path, ids: Sequence[int], states: States, names: Sequence[str]) -> Path:
    """Tensors by Strata's own names, as the service sends them."""
    file = file.with_suffix(".safetensors")
    save_file({"input_ids": torch.tensor(ids), **{name: as_torch(states[name]) for name in names}}, file)
    return file


def bare(file: Path, ids: Sequence[int], states: States, names: Sequence[str]) -> Path:
    """A list of tensors and nothing else."""
    file = file.with_suffix(".pt")
    torch.save([as_torch(states[name]) for name in names], file)
    return file


WRITERS: dict[str, Write] = {
    "speculators": stacked,
    "speculators v1": listed,
    "SpecForge": beside,
    "SpecForge, compressed": zipped,
    "ModelOpt": modelopt,
    "named tensors": named,
}
