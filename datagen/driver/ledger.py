"""What the driver has in hand and has not committed yet, and when it is due.

The driver is the only committer of its run; a commit is a version.
"""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from datagen.checks import BindingCounts, OnPolicyCounts
from datagen.config import PartSettings
from datagen.store.closed_part import ClosedPart
from datagen.store.dataset import Dataset
from datagen.worker.making import UnitResult
from schemas.records import Outcome, QuarantinedSample, RunEnd, VersionRecord


class Ledger:
    """Parts and quarantined samples on their way into a version, with the run's totals."""

    def __init__(self, dataset: Dataset, run_id: str, parts: PartSettings) -> None:
        self.dataset = dataset
        self.version: VersionRecord | None = dataset.latest()
        self.n_samples = 0
        self.n_tokens = 0
        self.payload_bytes = 0
        self.size_bytes = 0
        self.reasons: Counter[str] = Counter()
        self.bound_by = "by nothing"
        """What binds samples to their ids, in words."""
        self.proven_by = ""
        """What proved the engine, in words."""
        self.binding = BindingCounts()
        self.on_policy = OnPolicyCounts()
        self._run_id = run_id
        self._settings = parts
        self._parts: list[ClosedPart] = []
        self._quarantined: list[QuarantinedSample] = []
        self._committed_at = time.monotonic()

    @property
    def version_number(self) -> int | None:
        """The newest version that this run knows, `None` while the dataset has none."""
        return self.version.number if self.version else None

    @property
    def n_quarantined(self) -> int:
        return self.reasons.total()

    def refused(self, reasons: frozenset[str]) -> dict[str, int]:
        """Return how many samples were quarantined for each of `reasons`."""
        return {reason: count for reason, count in self.reasons.items() if reason in reasons}

    def add(self, part: ClosedPart | None, quarantined: Sequence[QuarantinedSample]) -> None:
        """Take what came of a unit."""
        if part is not None:
            self._parts.append(part)
            self.n_samples += part.record.n_samples
            self.n_tokens += part.record.n_tokens
            self.payload_bytes += sum(tensor.payload_bytes for tensor in part.record.tensors)
            self.size_bytes += part.record.size_bytes
        self._quarantined += quarantined
        self.reasons.update(row.reason for row in quarantined)

    def count(self, result: UnitResult) -> None:
        """Take what the content checks of a unit came to."""
        self.binding += result.binding
        self.on_policy += result.on_policy

    def due(self) -> bool:
        """Say whether enough parts, or enough time, have come together for a commit."""
        waited = time.monotonic() - self._committed_at
        return len(self._parts) >= self._settings.commit_every_parts or (
            bool(self._parts) and waited >= self._settings.commit_every_seconds
        )

    def commit(self) -> VersionRecord | None:
        """Commit what is in hand; returns the new version, or the one there was when nothing is in hand."""
        if self._parts or self._quarantined:
            self.version = self.dataset.commit(self._parts, self._quarantined, run_id=self._run_id)
            self._parts, self._quarantined = [], []
        self._committed_at = time.monotonic()
        return self.version

    def write_end(self, outcome: Outcome, reason: str | None, seconds: float) -> None:
        """Store how the run ended, once; what it made is what was added here."""
        self.dataset.write_run_end(
            RunEnd(
                run_id=self._run_id,
                ended_at=datetime.now(UTC),
                outcome=outcome,
                reason=reason,
                n_samples=self.n_samples,
                n_tokens=self.n_tokens,
                n_quarantined=self.n_quarantined,
                size_bytes=self.size_bytes,
                last_version=self.version_number,
                seconds=seconds,
            )
        )
