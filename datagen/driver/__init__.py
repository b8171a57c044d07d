"""The driver of a run: hands out units, takes what comes, and is the only one that commits."""
