"""What a dataset already holds, and whether this run may add to it.

Fatal when different: the schema (the target's weights, quantisation, tokenizer and chat template are in it),
the engine, its version and arguments, dtype, truncation, mode, sampling. Then a run is refused with all
differences.
"""

from dataclasses import dataclass

from datagen.errors import ResumeError
from datagen.store.dataset import Dataset
from datagen.store.door import Door
from datagen.store.errors import CorruptError, NotFoundError
from schemas.problem import Problem
from schemas.provenance import Provenance, identity_differences
from schemas.records import VersionRecord
from schemas.schema import Schema


@dataclass(frozen=True)
class Held:
    """What the dataset holds: its latest version, and the prompts that need no second try."""

    dataset: Dataset | None
    version: VersionRecord | None
    made: frozenset[str]
    quarantined: frozenset[tuple[str, str | None, str]]


NOTHING = Held(None, None, frozenset(), frozenset())


def held(door: Door, name: str, schema: Schema, provenance: Provenance) -> Held:
    """Return what the dataset `name` holds, `NOTHING` when there is none.

    Raises `ResumeError` with every difference that forbids adding to it, and when it is damaged.
    """
    try:
        dataset = Dataset.open(door, name)
    except NotFoundError:
        return NOTHING
    except CorruptError as error:
        raise _damaged(name, error) from error
    try:
        return _held(dataset, name, schema, provenance)
    except CorruptError as error:
        raise _damaged(name, error) from error


def _damaged(name: str, error: CorruptError) -> ResumeError:
    return ResumeError(
        f"{name} is damaged: nothing is added to it (`strata verify` says all)", error.problems
    )


def _held(dataset: Dataset, name: str, schema: Schema, provenance: Provenance) -> Held:
    version = dataset.latest()
    problems = _schema_differences(dataset, version, schema)
    starts = dataset.run_starts()
    if starts:
        problems += provenance.fatal_differences(starts[-1].provenance)
    if problems:
        raise ResumeError(f"{name} was made otherwise: this run cannot add to it", problems)
    if version is None:
        return Held(dataset, None, frozenset(), frozenset())
    snapshot = dataset.snapshot(version.number)
    quarantined = snapshot.quarantined()
    made = set(snapshot.index.prompt_ids())
    # Poison failed where others were made, and wrong content was refused: neither gets better by itself.
    made |= {row.prompt_id for row in quarantined if row.prompt_id is not None}
    known = frozenset((row.source, row.prompt_id, row.reason) for row in quarantined)
    return Held(dataset, version, frozenset(made), known)


def _schema_differences(dataset: Dataset, version: VersionRecord | None, schema: Schema) -> list[Problem]:
    starts = dataset.run_starts()
    if version is not None:
        fingerprint = version.schema_fingerprint
    elif starts:
        fingerprint = starts[-1].schema_fingerprint
    else:
        return []
    if fingerprint == schema.fingerprint:
        return []
    theirs, mine = dataset.schema(fingerprint).by_name(), schema.by_name()
    return list(identity_differences("schema", mine, theirs))
