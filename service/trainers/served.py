"""A version behind a service, held by the client: over HTTP, or from its files where they can be read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from datagen.store.trainer_rows import Listed
from schemas.dataset_facts import DatasetFacts
from service.client.client import LATEST, Client
from service.client.errors import InvalidError
from service.client.session import Direct
from service.client.stack import MakeStates, Stack, new_states
from service.client.version import Version
from service.trainers.held import ServedReference, TokenRows

TOKENS_AT_ONCE = 64
"""Samples whose tokens are asked for in one request."""
TOO_LARGE = 413
RETRIES_WHILE_TRAINING = 16
"""Some three to five minutes: a training is not to end with a service that is started anew, and other ranks
wait for ten. What is opened first is given up after some 12 s."""


class _Numbered(NamedTuple):
    number: int
    dataset_id: str


@dataclass(frozen=True)
class ServedVersion:
    """A `Held` behind a service at `url`; `version` keeps the connections."""

    url: str
    version: Version

    @property
    def source(self) -> str:
        return str(ServedReference(self.url, self.version.dataset, self.version.number))

    @property
    def facts(self) -> DatasetFacts:
        version = self.version
        numbered = _Numbered(version.number, version.dataset_id)
        reference = f"{version.dataset}@{version.number}"
        return DatasetFacts(reference, version.schema, numbered, version.final_norm)

    def groups(self, splits: Sequence[str]) -> list[list[Listed]]:
        if not splits:
            return [list(self.version.samples())]
        return [list(self.version.samples(split=split)) for split in splits]

    def tokens(self, sample_ids: Sequence[str]) -> Iterator[TokenRows]:
        for first in range(0, len(sample_ids), TOKENS_AT_ONCE):
            ids = sample_ids[first : first + TOKENS_AT_ONCE]
            for rows in self.version.batch(ids, ("input_ids", "loss_mask")):
                yield TokenRows(rows.tokens["input_ids"], rows.tokens["loss_mask"])

    def stack(
        self,
        sample_id: str,
        names: Sequence[str],
        columns: Sequence[str] = ("input_ids",),
        *,
        out: MakeStates = new_states,
    ) -> Stack:
        return self.version.stack(sample_id, names, columns, out=out)

    @property
    def asks(self) -> bool:
        return self.version.mode == "http"

    def stacks(
        self,
        sample_ids: Sequence[str],
        names: Sequence[str],
        columns: Sequence[str] = ("input_ids",),
        *,
        out: MakeStates = new_states,
    ) -> list[Stack]:
        try:
            return self.version.stacks(sample_ids, names, columns, out=out)
        except InvalidError as error:
            if error.status != TOO_LARGE or len(sample_ids) == 1:
                raise
        # A service that gives less at once.
        half = len(sample_ids) // 2
        parts = (sample_ids[:half], sample_ids[half:])
        return [stack for part in parts for stack in self.stacks(part, names, columns, out=out)]


def open_served(reference: ServedReference, key: str | None, *, direct: bool) -> ServedVersion:
    """Open a version of a service; raises what `Client.version` raises."""
    told: Direct = "auto" if direct else False
    asked = LATEST if reference.version is None else reference.version
    with Client(reference.url, key, direct=told) as client:
        number = client.version(reference.dataset, asked).number
    patient = Client(reference.url, key, direct=told, retries=RETRIES_WHILE_TRAINING)
    return ServedVersion(reference.url, patient.version(reference.dataset, number))
