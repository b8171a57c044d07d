"""One version of one dataset, as a trainer holds it: immutable, so everything that it answers stays true."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.schema import Schema
from schemas.wiring import Wiring
from service.client.answers import SampleAnswer
from service.client.rows import Out, Rows


class OrderTable(NamedTuple):
    """The samples of a selection in ascending order of their ids, all that an epoch order is made of.

    `sample_ids` are `[n, 32]` uint8 as `service.wire.order.epoch_order` takes them, `n_tokens` and
    `n_trained` `[n]` int32.
    """

    sample_ids: NDArray[np.uint8]
    n_tokens: NDArray[np.int32]
    n_trained: NDArray[np.int32]


@dataclass(frozen=True)
class Version:
    """Version `number` of `dataset`, under `schema`; every request says the fingerprint and the wiring.

    With a wiring `names` left out are the wiring's tensors and the token columns, else everything there is.
    Safe for threads, for forked children, and to be pickled.
    """

    dataset: str
    number: int
    schema: Schema
    wiring: Wiring | None
    n_samples: int
    n_tokens: int

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors and token columns that are fetched when no names are given."""
        tensors = self.wiring.tensors if self.wiring is not None else self.schema.names
        return (*tensors, *(column.name for column in self.schema.token_columns))

    def samples(
        self, *, split: str | None = None, min_tokens: int = 0, min_trained: int = 0, page: int = 1000
    ) -> Iterator[SampleAnswer]:
        """Yield the samples in ascending order of their ids, asked for page by page."""
        raise NotImplementedError

    def sample(self, sample_id: str) -> SampleAnswer:
        """Return what the index knows of a sample."""
        raise NotImplementedError

    def tensors(
        self,
        sample_id: str,
        names: Sequence[str] | None = None,
        tokens: slice | None = None,
        *,
        out: Out = None,
    ) -> Rows:
        """Return a sample's rows, or those of a window of its tokens; every byte's checksum is compared.

        `out`, a uint8 buffer or what makes one, is filled; `Rows.buffer` is the part that was used. Raises
        `RefusedError` when the dataset does not fit the wiring, `InvalidError` for unknown names or a window
        outside of the sample, `ChecksumError` (or `DamagedError`, in direct mode) that names the tensor.
        """
        raise NotImplementedError

    def batch(
        self, sample_ids: Sequence[str], names: Sequence[str] | None = None, *, out: Out = None
    ) -> Rows:
        """Return several samples' rows end to end, in the order asked; else as `tensors`."""
        raise NotImplementedError

    def order_table(
        self, *, split: str | None = None, min_tokens: int = 0, min_trained: int = 0
    ) -> OrderTable:
        """Return the samples of a selection by id, with their lengths."""
        raise NotImplementedError
