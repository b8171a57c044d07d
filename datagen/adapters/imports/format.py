"""What a file format of another library is to an import: which samples lie where, and one of them read.

A format finds its samples without reading a state, and reads one when it is asked to; who proves, checks,
quarantines and writes is `datagen.ingest`, the same for all. No file is believed to be what its name says,
and nothing in one is ever run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from datagen.adapters.foreign_samples import Slot
from schemas.problem import Problem
from schemas.schema import DType
from schemas.target import Target

Padding = Literal["tell", "keep", "cut"]
"""What is done with tokens at the end that may be padding: told apart where they can be, else as it says."""
ALL_TRAINED = "ones"
"""As `--masks` says it: files without a loss mask are trained on every token."""


class Listed(NamedTuple):
    """A sample that lies in the files and is not read yet.

    `name` is one of its kind among all files that were given, and what a person finds it by:
    `hs_12.safetensors`, `shard-000001.safetensors[7]`. `number` is the format's own count, or the place in
    the file, where there is one.
    """

    name: str
    path: Path
    number: int | None = None


@dataclass(frozen=True)
class ImportOptions:
    """What a format needs to know beside its files; `target` is the model that the states are said to be of.

    `endings` are the target's tokens that end a text, as far as they are known; `whole` the ids of samples
    that are known to be without padding, as a list of rows beside them says.
    """

    target: Target
    masks: Path | Literal["ones"] | None = None
    """Where the loss masks are, for a format that keeps them apart; `ones` for files without any."""
    dequantise: DType | None = None
    """What states of 8 bits are to become; `None` refuses them, since they are no longer the target's."""
    padding: Padding = "tell"
    endings: tuple[int, ...] = ()
    whole: frozenset[str] = frozenset()
    first_token: int | None = None
    """The token that every sample begins with, for a format that drops it."""


@dataclass(frozen=True)
class ForeignRow:
    """One sample as its file has it, T tokens: a slot's rows are `[T, H]` of the file's own dtype.

    Slots are in the order that labels are given in. Their rows may be views of one another's memory, of any
    strides. `loss_mask` is as it lies there, `None` where there is none; its
    length and values, and each slot's rows, are compared by who ingests.
    """

    token_ids: NDArray[np.int64]
    loss_mask: NDArray[np.generic] | None
    slots: tuple[Slot, ...]
    conversation_id: str | None = None
    last: str | None = None
    """The tensor that the file itself says its last slot is, for a format that has a flag of it."""


class OpenFiles(Protocol):
    """Some files of one format. Used by several threads at once."""

    @property
    def samples(self) -> Sequence[Listed]:
        """What there is to read, in the files' own order."""
        ...

    @property
    def problems(self) -> Sequence[Problem]:
        """What is wrong with the files as a whole: errors forbid to go on, notes are told (as of gaps)."""
        ...

    @property
    def claimed(self) -> tuple[str, ...] | None:
        """The slots' tensors as the files themselves say, in order; `None` where they say nothing.

        They are labels where none are given, and are proven as those are.
        """
        ...

    def read(self, listed: Listed, *, states: bool = True) -> ForeignRow:
        """Read one; raises `ForeignFileError` with every problem (cut off, pickled, of other shapes).

        Without `states` their values may be any, of the right shape and dtype: a format that would read
        them for nothing leaves them.
        """
        ...


class ImportFormat(Protocol):
    """One file format, as its own library writes it."""

    @property
    def name(self) -> str:
        """As `--format` says it; the same as the export's."""
        ...

    def open(self, paths: Sequence[Path], options: ImportOptions) -> OpenFiles:
        """Find the samples in files and folders; no state is read.

        What is wrong is in `problems` of what is returned. Raises `ForeignFileError` where nothing can be
        found at all, as in a folder without the format's manifest.
        """
        ...
