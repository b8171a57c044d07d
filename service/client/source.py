"""What a stream reads from: one immutable version of a dataset. `service.client.version.Version` is one."""

from collections.abc import Sequence
from typing import Protocol

from schemas.final_norm import FinalNorm
from schemas.schema import Schema
from service.client.rows import Out, Rows
from service.client.version import OrderTable


class Source(Protocol):
    """One version of a dataset, safe for threads; to be used in DataLoader workers it must be picklable."""

    @property
    def dataset(self) -> str:
        """The dataset's name."""

    @property
    def number(self) -> int:
        """The version's number."""

    @property
    def schema(self) -> Schema:
        """The schema of its samples."""

    @property
    def final_norm(self) -> FinalNorm | None:
        """The target's final norm where `final_normed` is made by it, and can be asked for."""

    def order_table(
        self, *, split: str | None = None, min_tokens: int = 0, min_trained: int = 0
    ) -> OrderTable:
        """Return the samples of a selection in ascending order of their ids."""

    def batch(
        self, sample_ids: Sequence[str], names: Sequence[str] | None = None, *, out: Out = None
    ) -> Rows:
        """Return whole samples, end to end in the order asked; every byte's checksum was compared."""

    def tensors(
        self,
        sample_id: str,
        names: Sequence[str] | None = None,
        tokens: slice | None = None,
        *,
        out: Out = None,
    ) -> Rows:
        """Return one sample, or a window of its tokens; every byte's checksum was compared."""
