"""The target's identity: which model, exactly, the hidden states are of.

Two models can share depth and width (Kimi-K2 and Kimi-K2.5 do), so identity is the weights' digest, the
quantisation and the tokenizer, not the shape.
"""

from typing import Literal

from pydantic import Field, PositiveInt

from schemas.record import Record

DigestMethod = Literal["hub_file_hashes", "sampled_safetensors", "synthetic"]


class WeightsDigest(Record):
    """A digest of the weights that needs no rehash of 600 GB at every resume.

    `hub_file_hashes` is over the hub's own file hashes; `sampled_safetensors` over every file's name, size,
    header and a fixed sample of its bytes; `synthetic` is of an engine that has no weights. Digests made by
    different methods are not comparable.
    """

    method: DigestMethod
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Target(Record):
    """The model whose hidden states these are.

    `n_layers` is L, the number of decoder layers; `hidden_size` is H, the width of the residual stream.
    """

    model_id: str
    revision: str | None
    model_type: str
    architecture: str
    n_layers: PositiveInt
    hidden_size: PositiveInt
    vocab_size: PositiveInt
    weights: WeightsDigest
    quantisation: str | None
    tokenizer_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    chat_template_sha256: str | None = Field(pattern=r"^[0-9a-f]{64}$")

    def identity(self) -> dict[str, object]:
        """Return the fields that two equal targets share; where the model lies does not count.

        `model_id` and `revision` are names: the same weights under another path are the same target.
        """
        return self.model_dump(mode="json", exclude={"model_id", "revision"})
