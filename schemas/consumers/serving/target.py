"""The target as its config.json names it, as far as flags depend on it."""

from typing import NamedTuple


class ServedTarget(NamedTuple):
    """`architectures[0]` and `model_type` of the target's config; `None` for what is not known."""

    architecture: str | None
    model_type: str | None
