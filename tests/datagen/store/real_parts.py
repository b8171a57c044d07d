"""Real parts of random samples, committed."""

from collections.abc import Sequence

from datagen.store.closed_part import ClosedPart
from datagen.store.dataset import Dataset
from datagen.store.part import PartWriter
from datagen.store.sample_data import SampleData
from schemas.schema import Schema
from tests.builders import random_sample


def samples_of(schema: Schema, lengths: Sequence[int], seed: int = 0) -> list[SampleData]:
    """Return a sample a length."""
    return [random_sample(schema, length, seed + number) for number, length in enumerate(lengths)]


def write_part(dataset: Dataset, schema: Schema, samples: Sequence[SampleData]) -> ClosedPart:
    """Write a part of the samples, and close it."""
    with PartWriter(dataset.door, dataset.name, schema, "run") as writer:
        for sample in samples:
            writer.add(sample)
        return writer.close()


def commit_samples(dataset: Dataset, schema: Schema, samples: Sequence[SampleData]) -> ClosedPart:
    """Write a part of the samples, and commit it."""
    part = write_part(dataset, schema, samples)
    dataset.commit([part], [], run_id="run")
    return part
