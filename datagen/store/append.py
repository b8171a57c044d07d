"""The append: closed parts become samples of the next version, each sample exactly once.

A sample that the version has already is left out, and one that answers what a sample of it answers: its part
keeps the bytes, nobody names them. Same ids with another mask, seen here by another count of trained tokens,
is a `mask_conflict` in quarantine, same ids of another prompt a `duplicate_answer`: the first one that was
committed stays. (Two masks with equal counts are told apart where prompts are read, not here: the
index carries no mask.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from datagen.store.closed_part import ClosedPart
from datagen.store.commit import Base, Draft
from datagen.store.errors import ConflictError
from datagen.store.index_table import (
    ID_BYTES,
    IndexTable,
    PartReference,
    id_strings,
    index_schema,
    pack_parts,
)
from datagen.store.quarantine import new_rows
from datagen.store.tables import Tables
from schemas.problem import Problem
from schemas.records import QuarantinedSample, QuarantineReason


@dataclass(frozen=True)
class Append:
    """Add the samples of closed parts, and what was quarantined, by one run."""

    tables: Tables
    parts: Sequence[ClosedPart]
    quarantined: Sequence[QuarantinedSample]
    schema_fingerprint: str
    run_id: str

    def draft(self, base: Base) -> Draft | None:
        """Return the version with what is new over `base`; raises `ConflictError`."""
        self._refuse(base)
        fresh, doubles = self._fresh(base)
        failed = [*self.quarantined, *doubles]
        known = self.tables.quarantine_keys(base.record) if base.record and failed else ()
        quarantined = new_rows(failed, known)
        if fresh is None and not quarantined:
            return None
        carried = (
            Draft.carried_over(base.record, base.tables, "append")
            if base.record
            else Draft("append", self.schema_fingerprint, self.run_id, 0)
        )
        used = {part.part_id for part in fresh.part_references()} if fresh else set()
        sizes = {part.record.part_id: part.record.size_bytes for part in self.parts}
        return replace(
            carried,
            run_id=self.run_id,
            fresh=(fresh,) if fresh else (),
            size_bytes=carried.size_bytes + sum(sizes[part_id] for part_id in used),
            quarantined=tuple(quarantined),
        )

    def _refuse(self, base: Base) -> None:
        condemned = {part.part_id for part in base.condemned}
        problems = [
            Problem(
                where=f"parts/{part.record.part_id}",
                kind="condemned",
                message=f"expected a part that gc leaves alone, got one that version {base.number} condemns",
                repair="make its samples again: gc may have removed it",
            )
            for part in self.parts
            if part.record.part_id in condemned
        ]
        expected = base.record.schema_fingerprint if base.record else self.schema_fingerprint
        problems += [
            Problem(
                where=f"parts/{part.record.part_id}",
                kind="schema",
                message=f"expected schema {expected}, got {part.record.schema_fingerprint}",
                repair="write to another dataset: one dataset has one schema",
            )
            for part in self.parts
            if part.record.schema_fingerprint != expected
        ]
        if problems:
            raise ConflictError("these parts cannot be committed", problems)

    def _fresh(self, base: Base) -> tuple[IndexTable | None, list[QuarantinedSample]]:
        """Return the rows that are new, and the samples whose ids are known with another mask."""
        if not self.parts:
            return None, []
        rows = joined_rows(self.parts)
        ids = id_strings(rows.column("sample_id"))
        first = np.zeros(len(ids), np.bool_)
        first[np.unique(ids, return_index=True)[1]] = True
        known = np.zeros(len(ids), np.bool_)
        for table in base.tables:
            known |= table.holds(ids)
        keep = first & ~known
        doubles = list(self._doubles(base, rows, np.flatnonzero(~keep)))
        keep &= ~_asked_before(base, rows, keep)
        if not keep.any():
            return None, doubles
        references = [PartReference(part.record.part_id, part.record_sha256) for part in self.parts]
        return IndexTable.sorted_from(rows.filter(pa.array(keep)), pack_parts(references)), doubles

    def _doubles(self, base: Base, rows: pa.Table, doubled: NDArray[np.int64]) -> Iterator[QuarantinedSample]:
        """Yield those of the rows that another one keeps out, and that were asked for otherwise."""
        if not len(doubled):
            return
        ids = id_strings(rows.column("sample_id"))
        distinct, first = np.unique(ids, return_index=True)
        for number in doubled:
            row = rows.slice(int(number), 1).to_pylist()[0]
            kept = _kept_in(base, ids[number])
            if kept is None:
                kept = rows.slice(int(first[np.searchsorted(distinct, ids[number])]), 1).to_pylist()[0]
            if row["n_trained"] != kept["n_trained"]:
                got = f"expected {kept['n_trained']} trained tokens as in the first one, "
                yield self._left_out(row, "mask_conflict", f"{got}got {row['n_trained']}")
            elif row["prompt_id"] != kept["prompt_id"]:
                detail = f"conversation {kept['conversation_id']} was answered with the same token ids"
                yield self._left_out(row, "duplicate_answer", detail)

    def _left_out(self, row: dict[str, object], reason: QuarantineReason, detail: str) -> QuarantinedSample:
        sample_id, prompt_id = row["sample_id"], row["prompt_id"]
        assert isinstance(sample_id, bytes)
        assert isinstance(prompt_id, bytes)
        return QuarantinedSample(
            source=f"conversation {row['conversation_id']}",
            reason=reason,
            detail=detail,
            run_id=self.run_id,
            conversation_id=str(row["conversation_id"]),
            prompt_id=prompt_id.hex(),
            sample_id=sample_id.hex(),
        )


def joined_rows(parts: Sequence[ClosedPart]) -> pa.Table:
    """Return the index rows of closed parts end to end, each with its part's number in `parts`."""
    tables = []
    for number, part in enumerate(parts):
        n_rows = part.samples.num_rows
        schema = index_schema(len(part.record.tensors))
        columns = [
            pa.array(np.full(n_rows, number, np.int32))
            if field.name == "part"
            else part.samples.column(field.name).combine_chunks().cast(field.type)
            for field in schema
        ]
        tables.append(pa.Table.from_arrays(columns, schema=schema))
    return pa.concat_tables(tables).combine_chunks()


def _kept_in(base: Base, sample_id: bytes) -> dict[str, object] | None:
    """Return the row that a version has of a sample."""
    for table in base.tables:
        row = table.find(sample_id.ljust(ID_BYTES, b"\0"))
        if row is not None:
            found: dict[str, object] = table.rows.slice(row, 1).to_pylist()[0]
            return found
    return None


def _asked_before(base: Base, rows: pa.Table, keep: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which of the rows answer what another one answers already: two drivers may have asked the same.

    The first of the rows to be kept stays, unless the version has one.
    """
    asked = rows.column("prompt_id")
    prompts = id_strings(asked)
    kept = np.flatnonzero(keep)
    again = np.ones(len(prompts), np.bool_)
    again[kept[np.unique(prompts[kept], return_index=True)[1]]] = False
    for table in base.tables:
        there = table.rows.column("prompt_id")
        known = there.filter(pc.is_in(there, value_set=asked.combine_chunks()))
        again |= np.isin(prompts, id_strings(known))
    return again
