"""A draft contract as a value: what must be the same at training and at serving, tensors aside.

Nothing here depends on a server. `None` says that the config does not say.
"""

from typing import Literal

from pydantic import Field, PositiveInt

from schemas.record import Record

Layout = Literal["plain", "speculators"]
"""How a draft's config.json is written: `plain` (SGLang, SpecForge, vLLM) or speculators' own format."""
RopeSpelling = Literal["rope_parameters", "rope_theta"]
"""Under which keys RoPE stands: `rope_theta` (with `rope_scaling`) is the spelling up to transformers 4."""
FlagName = Literal["norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"]
ScalingValue = bool | int | float | str | tuple[bool | int | float | str, ...]


class Norms(Record):
    """Which norms the draft was trained with; `None` for one that the config leaves to its reader."""

    norm_before_residual: bool | None = False
    """The residual stream starts from the normed state, not from the raw one; has no weight of its own."""
    norm_before_fc: bool = False
    """One norm over the whole concatenated `fc` input: `input_norm.weight`."""
    fc_norm: bool = False
    """One norm a slot of the `fc` input: `fc_norm.0.weight` and on."""
    norm_output: bool = False
    """The state that is fed back to the next draft step is the normed one; has no weight of its own."""


class Rope(Record):
    """Rotary embeddings; `scaling` without its theta, empty where nothing is scaled."""

    theta: float | None = None
    scaling: dict[str, ScalingValue] = Field(default_factory=dict)
    spelling: RopeSpelling | None = None


class Vocabulary(Record):
    """Tokens that the draft can propose (`draft_size`, rows of its lm_head) and that it reads (`size`)."""

    size: PositiveInt | None = None
    draft_size: PositiveInt | None = None


class Shape(Record):
    """Sizes of the draft; `target_hidden_size` is a slot's width in `fc` where it is not `hidden_size`."""

    n_layers: PositiveInt | None = None
    hidden_size: PositiveInt | None = None
    target_hidden_size: PositiveInt | None = None
    head_dim: PositiveInt | None = None
    n_slots: PositiveInt | None = None
    """Slots of the `fc` input, where the config says how many."""


class DraftContract(Record):
    """What a draft's config says of its weights.

    >>> DraftContract(norms=Norms(norm_before_fc=True)).norms.norm_before_fc
    True
    """

    layout: Layout = "plain"
    architecture: str | None = None
    model_type: str | None = None
    norms: Norms = Norms()
    rope: Rope = Rope()
    shape: Shape = Shape()
    vocabulary: Vocabulary = Vocabulary()
    sliding_window: PositiveInt | None = None
    """Tokens that a layer looks back on, where a layer is of the type `sliding_attention`."""
    tie_word_embeddings: bool = False
    embed_trained: bool = False
    """Whether `embed_tokens` was trained, and so is not the target's (`embed_requires_grad`)."""
