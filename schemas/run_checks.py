"""What a run's content checks came to: what proved its engine, and what bound its samples to their ids."""

from typing import Literal

from pydantic import AwareDatetime, Field, NonNegativeInt

from schemas.record import Record


class RunChecks(Record):
    """`runs/<run>/checks.json`, written at a run's end.

    `binding` says in words what bound samples to their ids, or why nothing did. Of those looked at, `n_bound`
    were bound by their own states, `n_again` were decided by a second pass, and `n_unbound` neither: too
    short, or too hard to foresee. Of `positions` in front of the target's own answers, on `tied` two tokens
    are as likely; of the others, on `agreeing` its argmax is the stored token. Without answers all are 0.

    `engine` is what the workers' engine says of itself, by name: where `embed` comes from, and of a server
    which of its layers it proved, and which are taken on trust (`unproven`). `proven_by` says in words what
    the audit set proved before the first part. Both are empty in records of before they were kept.
    """

    format: Literal["strata.run_checks.v1"] = "strata.run_checks.v1"
    run_id: str
    made_at: AwareDatetime
    binding: str
    n_bound: NonNegativeInt
    n_again: NonNegativeInt
    n_unbound: NonNegativeInt
    positions: NonNegativeInt = 0
    tied: NonNegativeInt = 0
    agreeing: NonNegativeInt = 0
    engine: dict[str, str] = Field(default_factory=dict)
    proven_by: str = ""

    @property
    def on_policy(self) -> float | None:
        """The share of agreeing positions, ties left out; `None` where there are none."""
        untied = self.positions - self.tied
        return self.agreeing / untied if untied else None
