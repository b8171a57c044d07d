"""What a person asks an ingest for, before anything is read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from datagen.adapters.imports.format import Padding
from schemas.schema import DType

PROVEN_FILES = 8


@dataclass(frozen=True)
class Asked:
    """`labels` are the slots' tensors in order; without, what the files themselves say, or the card beside.

    `target` is a model's folder or its hub id; without, the card's target, of which nothing can be proven.
    """

    format: str
    files: tuple[Path, ...]
    dataset: str
    labels: tuple[str, ...] | None = None
    target: str | None = None
    proven: bool = True
    masks: Path | Literal["ones"] | None = None
    dequantise: DType | None = None
    padding: Padding = "tell"
    first_token: int | None = None
    device: str = "auto"
    prove: int = PROVEN_FILES
    """How many files are held against the target, at most."""
