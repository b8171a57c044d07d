"""A part, written: samples in, one Zarr group and its records out; `part.json` last, without it no part.

A sample is checked as a whole before a byte of it is written, so a refused one leaves no trace. Everything
large goes straight to its file: memory is that of the samples in hand, whatever the part's size.
"""

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, Self

from datagen.store.closed_part import ClosedPart, IndexRows
from datagen.store.door import Door
from datagen.store.errors import RefusedError, StoreError
from datagen.store.group import GroupWriter
from datagen.store.layout import SAMPLES, Layout
from datagen.store.sample_check import sample_problems, scan_problems
from datagen.store.sample_data import SampleData
from datagen.store.samples import SampleRow, SamplesWriter
from schemas.problem import Problem
from schemas.record import sha256_hex
from schemas.records import PartRecord
from schemas.schema import Schema


class PartWriter:
    """Writes one part of a dataset under `schema`; a context manager that aborts what was not closed.

    `threads` work on a sample's tensors side by side. `DoorError` from any call, where the place fails, means
    that the part is lost: it can only be aborted.
    """

    def __init__(
        self,
        door: Door,
        dataset: str,
        schema: Schema,
        run_id: str,
        part_id: str | None = None,
        threads: int = 2,
    ) -> None:
        self.part_id = part_id or uuid.uuid4().hex
        self._door = door
        self._layout = Layout(dataset)
        self._schema = schema
        self._run_id = run_id
        self._sample_ids: set[str] = set()
        self._index_rows = IndexRows(schema)
        self._state: Literal["open", "writing", "closed", "aborted"] = "open"
        folder = self._layout.part(self.part_id)
        with ExitStack() as undo:
            self._executor = undo.enter_context(ThreadPoolExecutor(threads, "part"))
            self._group = GroupWriter(door, folder, schema, self._executor)
            undo.callback(self._group.abort)
            samples = door.open_writer(f"{folder}/{SAMPLES}")
            undo.callback(samples.abort)
            self._samples = SamplesWriter(samples, schema)
            undo.pop_all()

    @property
    def n_samples(self) -> int:
        """Samples added so far."""
        return len(self._sample_ids)

    @property
    def n_tokens(self) -> int:
        """Tokens added so far."""
        return self._group.n_tokens

    @property
    def payload_bytes(self) -> int:
        """Bytes of hidden states added so far."""
        return self.n_tokens * self._schema.token_bytes

    def add(self, sample: SampleData) -> None:
        """Write a sample behind those that are there; its buffers may be reused after the call.

        Raises `RefusedError` with every problem, before a byte is written: the part goes on without it.
        """
        self._check_open()
        problems = sample_problems(sample, self._schema)
        if sample.sample_id in self._sample_ids:
            message = "expected once in a part, got it again"
            problems.append(Problem(where="sample_id", kind="duplicate", message=message))
        if not problems:
            scans = self._group.scan(sample.tensors)
            problems += scan_problems(scans)
        if problems:
            raise RefusedError(f"sample {sample.sample_id} from {sample.source} is refused", problems)
        row = SampleRow.of(sample, self.n_tokens, scans)
        # A write that fails half way leaves a torn part in this state, and it can never be closed.
        self._state = "writing"
        self._group.append(sample)
        self._samples.add(row)
        self._index_rows.add(row)
        self._sample_ids.add(sample.sample_id)
        self._state = "open"

    def close(self) -> ClosedPart:
        """Make the part durable, its record last, and return what the committer needs of it.

        Raises `RefusedError` when no sample was added: there is no empty part.
        """
        self._check_open()
        if not self._sample_ids:
            problem = Problem(where="samples", kind="empty", message="expected at least one sample, got none")
            raise RefusedError("a part without samples cannot be closed", [problem])
        self._state = "writing"
        tensors, files = self._group.finish()
        files.append(self._samples.finish(SAMPLES))
        folder = self._layout.part(self.part_id)
        self._door.settle([f"{folder}/{file.path}" for file in files])
        record = PartRecord(
            part_id=self.part_id,
            run_id=self._run_id,
            schema_fingerprint=self._schema.fingerprint,
            created_at=datetime.now(UTC),
            n_samples=self.n_samples,
            n_tokens=self.n_tokens,
            tensors=tensors,
            files=tuple(sorted(files, key=lambda file: file.path)),
        )
        data = record.to_json()
        self._door.create(self._layout.part_record(self.part_id), data)
        self._state = "closed"
        self._executor.shutdown()
        digest = sha256_hex(data)
        return ClosedPart(record, digest, self._index_rows.table(self.part_id, digest))

    def abort(self) -> None:
        """Give up: what was written is removed where that is possible, and is in no record.

        A part that was closed stays.
        """
        if self._state in ("closed", "aborted"):
            return
        self._state = "aborted"
        self._group.abort()
        self._samples.abort()
        self._executor.shutdown()
        # Whoever aborts has an error to tell already; what cannot be removed now, gc removes.
        with suppress(StoreError):
            for entry in list(self._door.entries(self._layout.part(self.part_id))):
                self._door.delete(entry.key)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Abort, unless `close` has returned."""
        self.abort()

    def _check_open(self) -> None:
        if self._state != "open":
            state = "torn" if self._state == "writing" else self._state
            raise StoreError(f"part {self.part_id} is {state}: start another one")
