"""The versions, verified: records in a gapless chain, and each one's index and quarantine as it says."""

from collections.abc import Iterator, Mapping

from datagen.store.damage import damage
from datagen.store.dataset import Dataset
from datagen.store.errors import StoreError
from datagen.store.index import Index
from datagen.store.index_table import IndexTable
from datagen.store.verify.values import problems_of
from schemas.problem import Problem
from schemas.records import VersionRecord

_SUFFIX = ".json"


def stored_numbers(dataset: Dataset) -> list[int]:
    """Return the numbers that have a version record, by listing."""
    folder = dataset.layout.version(0).rpartition("/")[0]
    names = (entry.key.rpartition("/")[2] for entry in dataset.door.entries(folder))
    stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def readable_versions(dataset: Dataset) -> list[VersionRecord]:
    """Return the records that are whole, oldest first."""
    records = []
    for number in stored_numbers(dataset):
        try:
            records.append(dataset.log.read_back(number))
        except StoreError:
            continue  # told by `chain_problems`
    return records


def chain_problems(dataset: Dataset) -> Iterator[Problem]:
    """Yield every record that is missing or changed, and what two neighbours disagree on."""
    numbers = stored_numbers(dataset)
    newest = max([*numbers, dataset.log.hint()])
    before: VersionRecord | None = None
    for number in range(1, newest + 1):
        key = dataset.layout.version(number)
        try:
            record = dataset.log.read_back(number)
        except StoreError as error:
            yield from problems_of(error, key)
            before = None
            continue
        if before and record.parent_digest != before.digest:
            yield damage(key, "parent", f"expected {before.digest} of version {before.number}, got another")
        if before and not {part.part_id for part in before.condemned} <= {
            part.part_id for part in record.condemned
        }:
            yield damage(key, "condemned", f"expected all parts that version {before.number} condemns")
        before = record
    if dataset.record.name != dataset.name:
        yield damage(dataset.layout.dataset, "name", f"expected {dataset.name}, got {dataset.record.name}")


def version_problems(
    dataset: Dataset, record: VersionRecord, tables: Mapping[str, IndexTable]
) -> Iterator[Problem]:
    """Yield where a version's index and quarantine contradict its record; `tables` are those readable."""
    key = dataset.layout.version(record.number)
    facts = {
        "n_samples": (sum(file.n_rows for file in record.index), record.n_samples),
        "n_tokens": (sum(file.n_tokens for file in record.index), record.n_tokens),
        "n_quarantined": (sum(file.n_rows for file in record.quarantine), record.n_quarantined),
    }
    for what, (expected, got) in facts.items():
        if expected != got:
            yield damage(key, what, f"expected {expected} as its files hold, got {got}")
    yield from _quarantine_problems(dataset, record)
    for file in record.index:
        if file.sha256 in tables and tables[file.sha256].n_tokens != file.n_tokens:
            message = f"expected {file.n_tokens} tokens, got {tables[file.sha256].n_tokens}"
            yield damage(dataset.layout.index(file.sha256), "n_tokens", message)
    index = Index([tables[file.sha256] for file in record.index if file.sha256 in tables])
    try:
        _ = index.order
        condemned = {part.part_id for part in record.condemned} & set(index.parts())
    except StoreError as error:
        yield from problems_of(error, key)
        return
    for part in sorted(condemned):
        yield damage(f"{key}: part {part}", "condemned", "expected no part that the version condemns")


def _quarantine_problems(dataset: Dataset, record: VersionRecord) -> Iterator[Problem]:
    for file in record.quarantine:
        key = dataset.layout.quarantine(file.sha256)
        try:
            dataset.tables.quarantine_rows([file])
        except StoreError as error:
            yield from problems_of(error, key)
