"""The failure that Strata exists for, and its kin, as tests that stay."""
