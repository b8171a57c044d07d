"""Verify a dataset: every invariant on disk, every problem by name."""

from datagen.store.verify.report import Progress, Report, verify

__all__ = ["Progress", "Report", "verify"]
