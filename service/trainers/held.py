"""A version of a dataset as a trainer reads it, wherever it lies: in a root, or behind a service.

It is named by one text, `ROOT/DATASET@VERSION` or `URL#DATASET@VERSION`, which travels to worker processes
and into a trainer's own record of its run.
"""

import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from datagen.store.trainer_rows import Listed
from schemas.dataset_facts import DatasetFacts
from schemas.errors import DatasetNameError
from schemas.reference import DatasetReference, parse_reference
from service.client.stack import MakeStates, Stack, new_states

KEY_VARIABLE = "STRATA_KEY"
"""The environment variable with a service's key: trainers write down their flags, and a key is no one's."""

_SERVED = re.compile(r"https?://")


class TokenRows(NamedTuple):
    """A sample's token ids and loss mask `[T]`, as they are stored."""

    input_ids: NDArray[np.generic]
    loss_mask: NDArray[np.generic]


class Held(Protocol):
    """One immutable version; safe for threads and forked children, and picklable as how it is found.

    Every byte's checksum is compared; errors are those of the store, or of the client.
    """

    @property
    def source(self) -> str:
        """The text that names it, the version as a number."""

    @property
    def facts(self) -> DatasetFacts:
        """What a check knows of it."""

    def groups(self, splits: Sequence[str]) -> list[list[Listed]]:
        """Return the samples of each split, or of the version as one group; refuses a split of no rule."""

    def tokens(self, sample_ids: Sequence[str]) -> Iterator[TokenRows]:
        """Yield samples' tokens in the order asked."""

    def stack(
        self,
        sample_id: str,
        names: Sequence[str],
        columns: Sequence[str] = ("input_ids",),
        *,
        out: MakeStates = new_states,
    ) -> Stack:
        """Return a sample's tensors as one array, as `service.client.version.Version.stack` does."""

    @property
    def asks(self) -> bool:
        """Whether samples come by requests, so that those of a batch are had sooner by `stacks`."""

    def stacks(
        self,
        sample_ids: Sequence[str],
        names: Sequence[str],
        columns: Sequence[str] = ("input_ids",),
        *,
        out: MakeStates = new_states,
    ) -> list[Stack]:
        """Return several samples as `stack` does each, `out` called in their order."""


class ServedReference(NamedTuple):
    """A dataset of a service; a version by its number or its name, and none means the newest.

    >>> str(ServedReference("http://127.0.0.1:8350", "demo", 3))
    'http://127.0.0.1:8350#demo@3'
    """

    url: str
    dataset: str
    version: int | str | None = None

    def __str__(self) -> str:
        return f"{self.url}#{self.dataset}" + ("" if self.version is None else f"@{self.version}")


def parse_source(text: str) -> DatasetReference | ServedReference:
    """Read a source; raises `DatasetNameError` when it is not written so.

    >>> parse_source("http://127.0.0.1:8350#demo@3")
    ServedReference(url='http://127.0.0.1:8350', dataset='demo', version=3)
    >>> parse_source("data/demo").dataset
    'demo'
    """
    if not _SERVED.match(text):
        return parse_reference(text)
    url, mark, rest = text.partition("#")
    if not mark or "/" in rest:
        raise DatasetNameError(f"expected URL#DATASET[@VERSION], got {text!r}")
    _, dataset, version = parse_reference(rest)
    return ServedReference(url, dataset, version)


def open_held(source: str, key: str | None = None, *, direct: bool = True) -> Held:
    """Open a version by its source; a service is asked with `key`.

    `direct` lets a service's files be read where they lie, if they can be. Loads the packages of the store
    only for a version in a root. Raises as the store or the client do where there is none.
    """
    reference = parse_source(source)
    if isinstance(reference, ServedReference):
        served: Held = import_module("service.trainers.served").open_served(reference, key, direct=direct)
        return served
    stored: Held = import_module("service.trainers.stored").open_stored(reference)
    return stored
