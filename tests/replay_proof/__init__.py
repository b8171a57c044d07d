"""Drafts trained under known wirings, which `strata replay` has to name: `make proof`, minutes, not in CI."""
