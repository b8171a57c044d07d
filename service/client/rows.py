"""What a fetch returns: the rows of one sample or of several, end to end, as views of one buffer."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BufferFactory = Callable[[int], NDArray[np.uint8]]
"""Makes a writable, contiguous `[n]` uint8 buffer of at least as many bytes as it is asked for."""

Out = NDArray[np.uint8] | BufferFactory | None
"""Where a fetch puts its bytes: a buffer of the caller's, one that a factory makes, or a new one."""

BITS: Mapping[str, np.dtype[np.generic]] = {
    "bfloat16": np.dtype("<u2"),
    "float16": np.dtype("<f2"),
    "float32": np.dtype("<f4"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "uint8": np.dtype("u1"),
}
"""The numpy dtype by which each dtype of a schema is given; numpy has no bfloat16, so its bits are uint16."""


@dataclass(frozen=True)
class Rows:
    """The rows of n samples, end to end in the order they were asked for; t tokens each, H the width.

    `tensors` are `[sum t, H]` by name, `tokens` the token columns `[sum t]`; `offsets` `[n + 1]` int64 says
    where each sample's rows begin. `dtypes` has the schema's dtype of each array. A bfloat16 tensor is given
    as its bits, uint16: `torch.from_numpy(rows.tensors["final"]).view(torch.bfloat16)`. All arrays are views
    of `buffer`, uint8, which the caller may have given: they change when it is filled again.
    """

    dataset: str
    version: int
    sample_ids: tuple[str, ...]
    offsets: NDArray[np.int64]
    tensors: Mapping[str, NDArray[np.generic]]
    tokens: Mapping[str, NDArray[np.generic]]
    dtypes: Mapping[str, str]
    buffer: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.sample_ids)

    @property
    def n_tokens(self) -> int:
        """Tokens of all samples."""
        return int(self.offsets[-1])

    def sample(self, at: int) -> "Rows":
        """Return the rows of one sample, as views."""
        if not 0 <= at < len(self):
            raise IndexError(f"expected a sample between 0 and {len(self) - 1}, got {at}")
        first, end = int(self.offsets[at]), int(self.offsets[at + 1])
        return Rows(
            dataset=self.dataset,
            version=self.version,
            sample_ids=(self.sample_ids[at],),
            offsets=np.array([0, end - first], np.int64),
            tensors={name: rows[first:end] for name, rows in self.tensors.items()},
            tokens={name: values[first:end] for name, values in self.tokens.items()},
            dtypes=self.dtypes,
            buffer=self.buffer,
        )

    def __iter__(self) -> Iterator["Rows"]:
        return (self.sample(at) for at in range(len(self)))


def buffer_of(out: Out, n_bytes: int) -> NDArray[np.uint8]:
    """Return a buffer of `n_bytes`: the start of the caller's, or a new one.

    Raises `ValueError` when the one that was given is too small, not contiguous or cannot be written.
    """
    buffer = out(n_bytes) if callable(out) else np.empty(n_bytes, np.uint8) if out is None else out
    fits = buffer.dtype == np.uint8 and buffer.ndim == 1 and buffer.flags.c_contiguous
    if not fits or not buffer.flags.writeable or len(buffer) < n_bytes:
        raise ValueError(
            f"expected `out` as a writable, contiguous uint8 buffer of at least {n_bytes} bytes, got "
            f"{buffer.dtype} {buffer.shape}"
        )
    return buffer[:n_bytes]
