"""What an audit set was held against when it was made: why each tensor is said to be what it is called."""

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from schemas.record import Record


class TensorAgreement(BaseModel):
    """A tensor's relative errors by token against the witness's, and the nearest other boundary of it.

    `outliers` are the tokens beyond the 99th percentile's limit: where a router chose another expert.
    `nearest` is the other boundary that the tensor is nearest to, at the median error `distance`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    median: float = Field(ge=0)
    p99: float = Field(ge=0)
    outliers: NonNegativeInt
    nearest: str | None
    distance: float | None = Field(ge=0)


class CalibrationRecord(Record):
    """`runs/<run>/calibration.json` of an audit set: who bore witness, and what the head chose.

    On `positions` the head ran on the stored `final`; on `tied` of them two tokens had the same logit, and of
    the others it chose as the engine did on `agreeing`.
    """

    format: Literal["strata.calibration.v1"] = "strata.calibration.v1"
    run_id: str
    made_at: AwareDatetime
    witness: str
    n_tokens: PositiveInt
    positions: NonNegativeInt
    tied: NonNegativeInt
    agreeing: NonNegativeInt
    tensors: tuple[TensorAgreement, ...]
