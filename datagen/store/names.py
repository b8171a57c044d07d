"""Names of versions: each created once, for one version, and never changed or deleted.

A name says the version's number and its digest, so a name that is quoted somewhere means the same samples for
ever; gc leaves the parts of named versions alone unless it is told not to.
"""

from datetime import UTC, datetime

from datagen.store.damage import corrupt
from datagen.store.door import Door
from datagen.store.errors import AlreadyExistsError, NotFoundError, StoreError
from datagen.store.keys import is_litter
from datagen.store.layout import Layout
from datagen.store.record_files import create_record, read_record
from datagen.store.version_log import VersionLog
from schemas.problem import Problem
from schemas.records import VersionName, VersionRecord

_SUFFIX = ".json"
_REPAIR = "restore it from a copy: what this name stood for cannot be told without it"


class VersionNames:
    """The names of one dataset's versions; safe for threads and for processes that name at once."""

    def __init__(self, door: Door, layout: Layout, log: VersionLog) -> None:
        self._door = door
        self._layout = layout
        self._log = log

    def read(self, name: str) -> VersionName:
        """Return a name's record, compared with the version that it names.

        Raises `NotFoundError` that lists the names there are, and `CorruptError` where it is changed.
        """
        key = self._layout.version_name(name)
        try:
            record = read_record(VersionName, self._door, key)
        except NotFoundError as error:
            there = ", ".join(self.keys()) or "none"
            message = f"expected the name of a version, got {name!r}; there are: {there}"
            problem = Problem(where="version", kind="version", message=message)
            raise NotFoundError(f"{self._layout.name} has no version named {name!r}", [problem]) from error
        if record.name != name:
            raise corrupt(key, "name", f"expected {name}, got {record.name}", _REPAIR)
        try:
            version = self._log.read(record.number)
        except NotFoundError as error:
            raise corrupt(
                key, "number", f"expected a version there is, got {record.number}", _REPAIR
            ) from error
        facts = {
            "digest": (version.digest, record.digest),
            "dataset_id": (version.dataset_id, record.dataset_id),
        }
        for what, (expected, got) in facts.items():
            if expected != got:
                raise corrupt(
                    key, what, f"expected {expected} of version {record.number}, got {got}", _REPAIR
                )
        return record

    def create(self, name: str, version: VersionRecord) -> tuple[VersionName, bool]:
        """Give a version a name, durable; return its record, and whether it is new.

        Naming the same version so again changes nothing. Raises `AlreadyExistsError` that says which version
        has the name, and `NotFoundError` when no version can be called so.
        """
        record = VersionName(
            name=name,
            dataset_id=version.dataset_id,
            number=version.number,
            digest=version.digest,
            named_at=datetime.now(UTC),
        )
        key = self._layout.version_name(name)
        try:
            create_record(self._door, key, record)
        except StoreError as error:
            if not self._door.exists(key):
                raise
            there = self.read(name)
            if (there.number, there.digest) != (record.number, record.digest):
                raise _taken(there, version) from error
            self._door.settle([key])
            return there, there == record
        return record, True

    def keys(self) -> list[str]:
        """Return the names there are, sorted. It lists a folder."""
        found = (entry.key for entry in self._door.entries(self._layout.names) if not is_litter(entry.key))
        files = (key.rpartition("/")[2] for key in found)
        return sorted(file.removesuffix(_SUFFIX) for file in files if file.endswith(_SUFFIX))

    def all(self) -> list[VersionName]:
        """Return every name's record, sorted by name; listed like `keys`, compared like `read`."""
        return [self.read(name) for name in self.keys()]


def _taken(there: VersionName, wanted: VersionRecord) -> AlreadyExistsError:
    message = f"expected a name that no version has, got {there.name!r}, which version {there.number} has"
    repair = f"choose another name for version {wanted.number}: a name never moves"
    problem = Problem(
        where="name",
        kind="taken",
        message=message,
        repair=repair,
        expected=str(wanted.number),
        got=str(there.number),
    )
    return AlreadyExistsError(f"the name {there.name!r} is taken by version {there.number}", [problem])
