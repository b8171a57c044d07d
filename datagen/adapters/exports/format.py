"""What a file format of another library is to an export: large files over samples, small files beside them.

A format says which files it needs, how large they are, and yields their bytes; who writes, hashes, resumes
and renames is `datagen.export.exporting`, the same for all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from datagen.adapters.exports.draft_vocabulary import DraftVocabulary, choose_tokens, count_trained
from datagen.store.final_norm import apply_norm
from datagen.store.index import Location
from datagen.store.snapshot import Snapshot
from schemas.boundary import FINAL
from schemas.final_norm import FinalNorm, derivable, derived_spec
from schemas.problem import Problem
from schemas.schema import Schema, TensorSpec
from schemas.wiring import Wiring


class Row(NamedTuple):
    """A sample at its place in an export, counted from 0."""

    number: int
    location: Location


class PlannedFile(NamedTuple):
    """A file that holds some samples' tensors: its path in the export, its samples, its exact size."""

    path: str
    rows: tuple[Row, ...]
    size_bytes: int


class TargetEnds(Protocol):
    """What a format may need of the target's weights: its table, and what makes logits of states."""

    @property
    def embedding(self) -> Tensor:
        """The table, `[V, H]`."""
        ...

    def logits(self, states: Tensor, *, norm: bool = True) -> Tensor:
        """Return the logits of states `[N, H]`, which are normed already without `norm`: `[N, V]`."""
        ...


@dataclass(frozen=True)
class Source:
    """What the samples are read from, and the wiring that they are exported in.

    A dataset that keeps `final` and has the target's norm, its own or one that was given, has `final_normed`
    like a tensor that is stored. `draft_vocab_size` is the number of tokens that the draft is to know, where
    one is asked for. Readers raise `CorruptError` where stored bytes are not those that were committed.
    """

    snapshot: Snapshot
    wiring: Wiring
    final_norm: FinalNorm | None = None
    """The target's."""
    rows: tuple[Row, ...] = ()
    draft_vocab_size: int | None = None
    head: TargetEnds | None = None
    """The target's ends, where a model was named to read them from."""
    sequence_length: int | None = None
    """Tokens that every sample is cut or padded to, for a format that stacks them; the longest by default."""
    probs_top_k: int | None = None
    """How many of a token's probabilities are kept, for a format that has such; all by default."""

    @property
    def schema(self) -> Schema:
        """The dataset's."""
        return self.snapshot.schema

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return max(row.location.n_tokens for row in self.rows)

    @cached_property
    def token_counts(self) -> NDArray[np.int64]:
        """How often each of the target's tokens is trained on in all rows, `[V]` int64."""
        samples = ((self.tokens(row, "input_ids"), self.tokens(row, "loss_mask")) for row in self.rows)
        return count_trained(samples, self.schema.target.vocab_size)

    @cached_property
    def vocabulary(self) -> DraftVocabulary | None:
        """The tokens of the draft; `None` where the draft is to know all of the target's."""
        if self.draft_vocab_size is None:
            return None
        return choose_tokens(self.token_counts, self.draft_vocab_size)

    @property
    def derived(self) -> tuple[str, ...]:
        """The tensors that can be asked for and are not stored, but made: `final_normed`, or none."""
        return derivable(self.schema, self.final_norm)

    def spec(self, name: str) -> TensorSpec:
        """Return dtype and width of a tensor, stored or made; raises `SchemaError` where there is none."""
        return derived_spec(self.schema) if name in self.derived else self.schema.tensor(name)

    def tensor(
        self, row: Row, name: str, first: int, end: int, out: NDArray[np.generic] | None = None
    ) -> NDArray[np.generic]:
        """Return `[end - first, H]` rows of a sample's tensor, every block's checksum compared.

        `out`, C-contiguous, is read into, so that no memory is taken anew; what is made is another array.
        """
        at = row.location
        part = self.snapshot.part(at)
        window = slice(first, end)
        if self.final_norm is None or name not in self.derived:
            return part.read_tensor(at.row_start, at.n_tokens, name, window, out=out)
        rows = part.read_tensor(at.row_start, at.n_tokens, FINAL, window, out=out)
        return apply_norm(self.final_norm, rows, self.spec(name).dtype)

    def tokens(self, row: Row, name: str) -> NDArray[np.generic]:
        """Return a sample's token column, `[T]`."""
        at = row.location
        return self.snapshot.part(at).read_tokens(at.row_start, at.n_tokens, name)


class ExportFormat(Protocol):
    """One file format, as its own library reads it; a format is a class of it, and says what is its own."""

    name: str
    """As `--format` says it."""
    trainer: str
    """`NAME==VERSION` of the consumer whose declared wiring it is made for."""
    vocabulary_files: tuple[str, ...] = ()
    """What `write_vocabulary` writes, for people; a format without is refused a draft's vocabulary."""

    holds_out: bool = True
    """Whether the trainer can hold out its last rows; one that trains on every row is given no others."""
    made_told: str = ""
    """What its files hold that is not stored as it is, but for what the norm makes; for people."""
    needs_head: bool = False
    """Whether the model itself makes part of the files: its lm_head is read then."""
    rows_told: str = "all of them for training: the trainer holds none out of a folder"
    """What becomes of the rows of one that does not hold out its last ones, for people."""
    options: frozenset[str] = frozenset()
    """Which of the settings of a few formats alone (`sequence_length`, `probs_top_k`) it knows."""

    def trainer_of(self, schema: Schema) -> str:  # noqa: ARG002
        """Return the trainer, for a format in which the dataset decides by which state the draft learns."""
        return self.trainer

    def problems(self, source: Source) -> Iterator[Problem]:  # noqa: ARG002
        """Yield what of the dataset the format has no way to hold; the wiring is judged before."""
        yield from ()

    def planned(self, rows: Sequence[Row], source: Source) -> list[PlannedFile]:
        """Return the large files, with their exact sizes."""
        ...

    def pieces(self, file: PlannedFile, source: Source) -> Iterator[memoryview | bytes]:
        """Yield a file's bytes, a few MiB at a time; each is whole until the next one is asked for."""
        ...

    def write_beside(self, folder: Path, rows: Sequence[Row], source: Source) -> list[str]:  # noqa: ARG002
        """Write the small files into `folder`, over what lies there, and return their paths in it."""
        return []

    def write_vocabulary(self, folder: Path, vocabulary: DraftVocabulary) -> list[str]:
        """Write the draft's vocabulary as the trainer reads it, and return its files' paths in `folder`."""
        told = f"{self.name} has no file for a draft's vocabulary"
        raise NotImplementedError(told)

    def beside_bytes(self, source: Source) -> int:  # noqa: ARG002
        """Return about how many bytes the small files take."""
        return 0

    def next_step(self, folder: Path, n_train: int, n_rows: int, source: Source) -> str:
        """Return the command that trains on the export, its first `n_train` rows for training."""
        ...
