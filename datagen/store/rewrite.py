"""Changes that only rewrite the list: drop samples, split, roll back. No byte of a part is touched.

Each is a new version; the samples of the older ones stay readable until gc condemns their parts.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from datagen.store.commit import Base, Draft
from datagen.store.errors import ConflictError, NotFoundError, RefusedError
from datagen.store.index_table import ID_BYTES, IndexTable
from schemas.problem import Problem
from schemas.records import SplitRule, VersionRecord
from schemas.split import rule_problems

PartSizes = Callable[[Iterable[str]], int]
"""Bytes of parts, summed, by their ids."""


def _record(base: Base) -> VersionRecord:
    if base.record is None:
        raise NotFoundError("the dataset has no version yet: commit a part first")
    return base.record


@dataclass(frozen=True)
class Drop:
    """Leave samples out; those that are not there are left out already."""

    sample_ids: frozenset[str]
    part_sizes: PartSizes

    def draft(self, base: Base) -> Draft | None:
        """Return `base` without the samples."""
        record = _record(base)
        wanted = np.unique(np.array([bytes.fromhex(i) for i in self.sample_ids], dtype=f"S{ID_BYTES}"))
        kept, fresh = [], []
        for file, table in zip(record.index, base.tables, strict=True):
            hit = np.isin(table.ids, wanted)
            if not hit.any():
                kept.append((file, table))
            elif (rest := table.without(hit)) is not None:
                fresh.append(rest)
        if len(kept) == len(base.tables):
            return None
        freed = _parts(base.tables) - _parts([*(table for _, table in kept), *fresh])
        return replace(
            Draft.carried_over(record, base.tables, "drop"),
            kept=tuple(kept),
            fresh=tuple(fresh),
            size_bytes=record.size_bytes - self.part_sizes(sorted(freed)),
        )


@dataclass(frozen=True)
class Split:
    """Replace the split rules."""

    rules: tuple[SplitRule, ...]

    def draft(self, base: Base) -> Draft | None:
        """Return `base` with these rules."""
        record = _record(base)
        if record.splits == self.rules:
            return None
        return replace(Draft.carried_over(record, base.tables, "split"), splits=self.rules)


@dataclass(frozen=True)
class Assign:
    """Set one split rule: it replaces the one of its name; with `only` it replaces all."""

    rule: SplitRule
    only: bool = False

    def draft(self, base: Base) -> Draft | None:
        """Return `base` with the rule; raises `RefusedError` where it clashes with another rule."""
        others = () if self.only else _record(base).splits
        known = self.rule.name in (rule.name for rule in others)
        rules = tuple(self.rule if rule.name == self.rule.name else rule for rule in others)
        rules = rules if known else (*rules, self.rule)
        if problems := rule_problems(rules):
            raise RefusedError("these split rules cannot stand beside each other", problems)
        return Split(rules).draft(base)


@dataclass(frozen=True)
class Rollback:
    """List again what an older version lists; what was quarantined since stays told."""

    target: VersionRecord
    tables: tuple[IndexTable, ...]

    def draft(self, base: Base) -> Draft | None:
        """Return the older version's samples; raises `ConflictError` when one of its parts is condemned."""
        record = _record(base)
        condemned = {part.part_id for part in base.condemned}
        lost = sorted(_parts(self.tables) & condemned)
        if lost:
            problems = [
                Problem(
                    where=f"parts/{part}",
                    kind="condemned",
                    message="expected a part that gc leaves alone, got a condemned one",
                    repair="go back to a version since, or make these samples again",
                )
                for part in lost
            ]
            raise ConflictError(f"version {self.target.number} cannot be rolled back to", problems)
        if self.target.index == record.index and self.target.splits == record.splits:
            return None
        return replace(
            Draft.carried_over(self.target, self.tables, "rollback"),
            quarantine=record.quarantine,
            condemned=record.condemned,
        )


def _parts(tables: Sequence[IndexTable]) -> set[str]:
    return {part.part_id for table in tables for part in table.part_references()}
