"""Measurements, each beside its baseline in the same run: `python -m tests.bench [NAME ...] [--json]`."""
