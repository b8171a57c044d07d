"""The target's final norm as a dataset keeps it: what makes `final_normed` of `final`, long after the model.

Its weight stands as the model's file has it. A model that is loaded in another dtype has its weight in that
one, so whoever applies the norm casts the weight to the rows' dtype first.
"""

import base64
import binascii
from typing import Literal, NamedTuple, Self

from pydantic import Field, PositiveInt, model_validator

from schemas.boundary import FINAL, FINAL_NORMED
from schemas.problem import Problem
from schemas.record import Record, canonical_json, sha256_hex
from schemas.schema import ITEM_BYTES, DType, Schema, TensorSpec
from schemas.target import Target, WeightsDigest

NormKind = Literal["rms_norm", "layer_norm"]
Casts = Literal["before_scale", "after_scale"]
"""Where float32 ends: Llama rounds to the rows' dtype and multiplies by the weight there, Gemma after it."""


class NormRecipe(NamedTuple):
    """The arithmetic of a norm without its weights; `offset` is added to the weight (Gemma's `1 + w`)."""

    kind: NormKind
    epsilon: float
    offset: float
    casts: Casts

    def __str__(self) -> str:
        plus = f", {self.offset:g} + weight" if self.offset else ""
        return f"{self.kind}, eps {self.epsilon:g}{plus}".replace("e-0", "e-")


class FinalNorm(Record):
    """The norm between boundary L and the lm_head, of the target whose weights have the digest `weights`.

    `weight` and `bias` are base64 of `hidden_size` little-endian values of `dtype`; `sha256` is of their
    bytes.
    """

    format: Literal["strata.final_norm.v1"] = "strata.final_norm.v1"
    kind: NormKind
    epsilon: float = Field(ge=0)
    offset: float = 0.0
    casts: Casts
    hidden_size: PositiveInt
    dtype: DType
    weight: str
    bias: str | None = None
    weights: WeightsDigest
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    @classmethod
    def of(
        cls,
        recipe: NormRecipe,
        dtype: DType,
        weight: bytes,
        bias: bytes | None,
        weights: WeightsDigest,
    ) -> Self:
        """Return the record of a norm whose values are given as raw bytes."""
        return cls(
            **recipe._asdict(),
            hidden_size=len(weight) // ITEM_BYTES[dtype],
            dtype=dtype,
            weight=base64.b64encode(weight).decode("ascii"),
            bias=None if bias is None else base64.b64encode(bias).decode("ascii"),
            weights=weights,
            sha256=sha256_hex(weight + (bias or b"")),
        )

    @model_validator(mode="after")
    def _bytes_are_whole(self) -> Self:
        expected = self.hidden_size * ITEM_BYTES[self.dtype]
        content = b""
        for name, text in (("weight", self.weight), ("bias", self.bias)):
            if text is None:
                continue
            try:
                data = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError) as error:
                raise ValueError(f"{name}: expected base64, got: {error}") from error
            if len(data) != expected:
                raise ValueError(f"{name}: expected {expected} bytes, got {len(data)}")
            content += data
        if sha256_hex(content) != self.sha256:
            raise ValueError(f"sha256: expected {self.sha256}, got {sha256_hex(content)} of weight and bias")
        return self

    @property
    def recipe(self) -> NormRecipe:
        """The arithmetic."""
        return NormRecipe(self.kind, self.epsilon, self.offset, self.casts)

    @property
    def weight_bytes(self) -> bytes:
        """The weight's bytes."""
        return base64.b64decode(self.weight)

    @property
    def bias_bytes(self) -> bytes | None:
        """The bias's bytes, `None` where the norm has none."""
        return None if self.bias is None else base64.b64decode(self.bias)

    def problems(self, target: Target) -> list[Problem]:
        """Return why this is not the norm of that target."""
        found = []
        if self.hidden_size != target.hidden_size:
            message = f"expected {target.hidden_size} weights ({target.model_id}), got {self.hidden_size}"
            found.append(Problem(where="final_norm.hidden_size", kind="target", message=message))
        mine, theirs = self.weights, target.weights
        if mine.method == theirs.method and mine.sha256 != theirs.sha256:
            message = (
                f"expected the weights that the states were made with ({theirs.sha256[:16]}, "
                f"{target.model_id}), got {mine.sha256[:16]}"
            )
            repair = "give the model that the dataset was made with"
            found.append(Problem(where="final_norm.weights", kind="target", message=message, repair=repair))
        return found

    @property
    def content(self) -> bytes:
        """What two equal norms share, as canonical JSON: all but where the weights' digest came from."""
        return canonical_json(self.model_dump(mode="json", exclude={"weights"}))


def derivable(schema: Schema, norm: FinalNorm | None) -> tuple[str, ...]:
    """Return the tensors that a dataset does not store, and that can be made of what it does."""
    names = schema.names
    return (FINAL_NORMED,) if norm is not None and FINAL in names and FINAL_NORMED not in names else ()


def derived_spec(schema: Schema) -> TensorSpec:
    """Return what `final_normed` is where it is made of `final`."""
    return schema.tensor(FINAL).model_copy(update={"name": FINAL_NORMED, "norm": "post_norm"})


def derived_note(norm: FinalNorm) -> str:
    """Return in words what `final_normed` is made by."""
    return f"{FINAL_NORMED} is made from {FINAL} by the target's own norm ({norm.recipe})"
