"""The card: the small JSON that travels with exports and with a draft's checkpoint.

It says what the draft's weights mean: of which target, wired to which tensors, with which norm state, shift
and mask, under which draft contract, from which version of which dataset. A check reads it in place of a
trainer.
"""

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from schemas.contract import DraftContract
from schemas.record import Record
from schemas.target import Target
from schemas.wiring import Wiring

CARD_FILE = "strata_card.json"
"""The name under which a card lies beside a draft's config.json, or beside an export."""


class DatasetVersion(Record):
    """Which samples: a dataset, its version and the fingerprint of its schema."""

    dataset_id: str = Field(pattern=r"^[0-9a-f]{32}$")
    name: str
    version: PositiveInt
    schema_fingerprint: str = Field(pattern=r"^[0-9a-f]{64}$")


class Card(Record):
    """What a draft's weights were, or are to be, trained on: the wiring is a trainer's, with its target."""

    format: Literal["strata.card.v1"] = "strata.card.v1"
    target: Target
    wiring: Wiring
    contract: DraftContract | None = None
    dataset: DatasetVersion | None = None

    @model_validator(mode="after")
    def _is_of_one_target(self) -> Self:
        if self.wiring.n_layers != self.target.n_layers:
            raise ValueError(
                f"wiring.n_layers: expected {self.target.n_layers} as the target's, "
                f"got {self.wiring.n_layers}"
            )
        if self.wiring.kind != "trainer" or self.wiring.target is None:
            raise ValueError("wiring: expected a trainer's, with a target, got one without")
        return self
