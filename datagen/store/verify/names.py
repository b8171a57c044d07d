"""The names of versions, verified: each one's record is whole, and says what its version says."""

from collections.abc import Iterator

from datagen.store.damage import damage
from datagen.store.dataset import Dataset
from datagen.store.errors import StoreError
from datagen.store.keys import is_litter
from datagen.store.verify.values import problems_of
from schemas.problem import Problem
from schemas.reference import version_name_problems


def named_problems(dataset: Dataset) -> Iterator[Problem]:
    """Yield every name that cannot be read, and every file beside them that is none."""
    for entry in dataset.door.entries(dataset.layout.names):
        file = entry.key.removeprefix(f"{dataset.layout.names}/")
        if is_litter(entry.key):
            continue  # told with all litter
        name = file.removesuffix(".json")
        if name == file or version_name_problems(name):
            yield damage(entry.key, "stranger", "expected a name's file, name.json", None)
            continue
        try:
            dataset.names.read(name)
        except StoreError as error:
            yield from problems_of(error, entry.key)
