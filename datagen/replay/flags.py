"""What may be switched in a draft's forward pass while its weights stay: norms, RoPE and window.

`Flags.of` is what the config says; each flag can be lost or set by `replace`, as a server would that does not
read it.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Self

from schemas.contract import DraftContract, Rope

FLAG_NAMES = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "head_norm")


@dataclass(frozen=True)
class Flags:
    """One way to run a draft.

    A norm that is switched on without a weight in the checkpoint runs with ones, as servers do.
    """

    norm_before_residual: bool = False
    """The residual stream starts from the normed `fc` output, not from the raw one."""
    norm_before_fc: bool = False
    """One norm over the whole concatenated `fc` input."""
    fc_norm: bool = False
    """One norm a slot of the `fc` input."""
    norm_output: bool = False
    """What is fed back to the next step is the normed state."""
    head_norm: bool = True
    """The lm_head reads the normed state; off only in SpecForge, where its own `norm_output` is false."""
    rope: Rope = field(default_factory=Rope)
    """A theta of `None` is the default of the model's class (10000)."""
    window: int | None = None
    """Tokens that a step looks back on, itself among them; `None` for all."""

    @classmethod
    def of(cls, contract: DraftContract) -> Self:
        """Return the flags that a draft's config states.

        A `norm_before_residual` that it leaves out is false, the default of speculators' own config.
        """
        norms = contract.norms
        return cls(
            norm_before_residual=norms.norm_before_residual or False,
            norm_before_fc=norms.norm_before_fc,
            fc_norm=norms.fc_norm,
            norm_output=norms.norm_output,
            rope=contract.rope,
            window=contract.sliding_window,
        )

    def flipped(self, name: str) -> Self:
        """Return these flags with the one called `name` (of `FLAG_NAMES`) the other way.

        >>> Flags().flipped("fc_norm").fc_norm
        True
        """
        if name not in FLAG_NAMES:
            raise ValueError(f"expected one of {', '.join(FLAG_NAMES)}, got {name!r}")
        change: dict[str, Any] = {name: not getattr(self, name)}
        return replace(self, **change)
