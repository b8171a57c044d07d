"""What is known of a dataset where it is held against a consumer: its schema, and what can be made."""

from dataclasses import dataclass

from schemas.final_norm import FinalNorm, derivable
from schemas.records import NumberedVersion
from schemas.schema import Schema


@dataclass(frozen=True)
class DatasetFacts:
    """What a check knows of a dataset."""

    reference: str
    schema: Schema
    version: NumberedVersion
    final_norm: FinalNorm | None = None
    """The target's, where it is kept with the dataset or was given."""

    @property
    def derivable(self) -> tuple[str, ...]:
        """The tensors that are not stored, and are made of those that are: `final_normed`, or none."""
        return derivable(self.schema, self.final_norm)
