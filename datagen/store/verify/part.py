"""One part, verified: its files against its record, its record against its schema, its rows in the index.

What the files hold is `PartValues`' to check. The check goes on past each problem as far as can be.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from datagen.store.closed_part import median_and_p99
from datagen.store.damage import damage
from datagen.store.door import Door
from datagen.store.errors import NotFoundError, StoreError
from datagen.store.group import METADATA, OFFSETS, column_path, tensor_path
from datagen.store.index import Location
from datagen.store.layout import GROUP, PART_RECORD, SAMPLES, Layout
from datagen.store.metadata import column_json, group_json, tensor_json
from datagen.store.part_table import PartTable
from datagen.store.shard import shard_problems
from datagen.store.verify.values import ByteSource, PartValues, problems_of
from schemas.errors import RecordError
from schemas.problem import Problem
from schemas.record import sha256_hex
from schemas.records import FileDigest, PartRecord
from schemas.schema import Schema


@dataclass
class PartCheck:
    """The check of one part; `rows` are the index rows that name it, `on_read` is told the bytes read."""

    door: Door
    layout: Layout
    part_id: str
    part_sha256: str
    schema: Schema
    rows: Iterable[Location]
    on_read: Callable[[int], None]

    @property
    def bytes(self) -> ByteSource:
        """What the part's bytes are read through."""
        return ByteSource(self.door, self.on_read)

    @property
    def folder(self) -> str:
        """The part's folder."""
        return self.layout.part(self.part_id)

    def problems(self) -> Iterator[Problem]:
        """Yield every problem of the part; goes on past each as far as can be."""
        try:
            record = self._record()
        except StoreError as error:
            yield from problems_of(error, self.layout.part_record(self.part_id))
            return
        except RecordError as error:
            yield from error.problems
            return
        yield from self._record_problems(record)
        broken: set[str] = set()
        for file in record.files:
            for problem in self._file_problems(file):
                broken.add(file.path)
                yield problem
        yield from self._stray_problems(record)
        yield from self._metadata_problems(record)
        yield from self._content_problems(record, broken)

    def _content_problems(self, record: PartRecord, broken: set[str]) -> Iterator[Problem]:
        """Yield what is wrong inside the files that are not `broken`."""
        whole = [spec for spec in self.schema.tensors if tensor_path(spec.name) not in broken]
        for spec in whole:
            key = f"{self.folder}/{tensor_path(spec.name)}"
            yield from shard_problems(self.door, key, record.n_tokens, spec.row_bytes)
        if SAMPLES in broken:
            return
        key = f"{self.folder}/{SAMPLES}"
        try:
            table = PartTable.decode(self.door.read(key), self.schema, record, key)
        except StoreError as error:
            yield from problems_of(error, key)
            return
        yield from self._index_problems(table)
        values = PartValues(self.bytes, self.folder, self.schema, table)
        yield from values.column_problems(broken)
        for spec in whole:
            yield from values.tensor_problems(spec)

    def _record(self) -> PartRecord:
        key = self.layout.part_record(self.part_id)
        data = self.door.read(key)
        if (found := sha256_hex(data)) != self.part_sha256:
            message = f"expected sha256 {self.part_sha256}, got {found}"
            raise RecordError(f"{key} is damaged", [damage(key, "sha256", message)])
        return PartRecord.from_json(data, key)

    def _record_problems(self, record: PartRecord) -> Iterator[Problem]:
        key = self.layout.part_record(self.part_id)
        facts = {
            "part_id": (self.part_id, record.part_id),
            "schema_fingerprint": (self.schema.fingerprint, record.schema_fingerprint),
            "tensors": (
                [
                    (spec.name, tensor_path(spec.name), spec.row_bytes, record.n_tokens * spec.row_bytes)
                    for spec in self.schema.tensors
                ],
                [(t.name, t.path, t.row_bytes, t.payload_bytes) for t in record.tensors],
            ),
            "files": (sorted(self._expected_files()), sorted(file.path for file in record.files)),
        }
        for what, (expected, got) in facts.items():
            if expected != got:
                yield damage(key, what, f"expected {expected}, got {got}")

    def _expected_files(self) -> list[str]:
        columns = [*(column.name for column in self.schema.token_columns), OFFSETS]
        arrays = [*self.schema.names, *columns]
        return [
            SAMPLES,
            f"{GROUP}/{METADATA}",
            *(f"{GROUP}/{name}/{METADATA}" for name in arrays),
            *(tensor_path(name) for name in self.schema.names),
            *(column_path(name) for name in columns),
        ]

    def _file_problems(self, file: FileDigest) -> Iterator[Problem]:
        key = f"{self.folder}/{file.path}"
        try:
            size = self.door.size(key)
            if size != file.size_bytes:
                yield damage(key, "size", f"expected {file.size_bytes} bytes, got {size}")
            elif file.sha256 is not None and (found := self._sha256(key, size)) != file.sha256:
                yield damage(key, "sha256", f"expected sha256 {file.sha256}, got {found}")
        except NotFoundError:
            yield damage(key, "missing", "expected a file, got none")
        except StoreError as error:
            yield from problems_of(error, key)

    def _sha256(self, key: str, size: int) -> str:
        digest = sha256()
        for _, piece in self.bytes.pieces(key, 0, size):
            digest.update(piece.data)
        return digest.hexdigest()

    def _stray_problems(self, record: PartRecord) -> Iterator[Problem]:
        known = {f"{self.folder}/{file.path}" for file in record.files}
        known.add(f"{self.folder}/{PART_RECORD}")
        for entry in self.door.entries(self.folder):
            if entry.key not in known:
                yield damage(entry.key, "stray", "expected no file that part.json does not list", None)

    def _metadata_problems(self, record: PartRecord) -> Iterator[Problem]:
        """Yield each `zarr.json` that does not say what the schema says."""
        n = record.n_tokens
        expected = {f"{GROUP}/{METADATA}": group_json()}
        for spec in self.schema.tensors:
            expected[f"{GROUP}/{spec.name}/{METADATA}"] = tensor_json(n, spec.width, spec.dtype)
        for column in self.schema.token_columns:
            expected[f"{GROUP}/{column.name}/{METADATA}"] = column_json(n, column.dtype, "token")
        offsets = column_json(record.n_samples + 1, "int64", "boundary")
        expected[f"{GROUP}/{OFFSETS}/{METADATA}"] = offsets
        for path, content in expected.items():
            key = f"{self.folder}/{path}"
            try:
                found = json.loads(self.door.read(key))
            except NotFoundError:
                continue  # told with the files
            except (ValueError, UnicodeDecodeError) as error:
                yield damage(key, "json", f"expected JSON, got: {error}")
                continue
            wanted = json.loads(content)
            for field in sorted({*wanted, *found} if isinstance(found, dict) else wanted):
                got = found.get(field) if isinstance(found, dict) else found
                if got != wanted.get(field):
                    yield damage(key, "zarr_json", f"{field}: expected {wanted.get(field)}, got {got}")

    def _index_problems(self, table: PartTable) -> Iterator[Problem]:
        """Yield every difference between the index rows of the part and `samples.parquet`."""
        for location in self.rows:
            where = f"{self.layout.name}/index: sample {location.sample_id}"
            try:
                row = table.find(location.row_start, location.n_tokens)
            except NotFoundError as error:
                yield damage(where, "row_start", f"expected a sample of {self.folder}, got: {error}")
                continue
            sample = table.sample(row)
            names = self.schema.names
            norms = np.stack([table.norms(row, name) for name in names])
            median, p99 = median_and_p99(norms)
            facts = {
                "sample_id": (sample.sample_id, location.sample_id),
                "prompt_id": (sample.prompt_id, location.prompt_id),
                "conversation_id": (sample.conversation_id, location.conversation_id),
                "n_trained": (sample.n_trained, location.n_trained),
                "crc32c": (tuple(table.whole(row, name) for name in names), location.crc32c),
                "norm_median": (tuple(median), location.norm_median),
                "norm_p99": (tuple(p99), location.norm_p99),
            }
            for what, (expected, got) in facts.items():
                if expected != got:
                    yield damage(where, what, f"expected {expected} as in {self.folder}, got {got}")
