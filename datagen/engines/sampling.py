"""How a target is to answer: pydantic only, no torch.

Nothing else decides an answer: what a model's `generation_config.json` says of temperature, top-k or
penalties is left aside, only the tokens that end an answer are taken from it.
"""

import hashlib

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

ANSWERING = frozenset({"hf", "synthetic", "vllm"})
"""The engines that can let their target answer."""

VLLM_TEMPERATURES = (0.01, 2.0)
"""vLLM raises lower ones to the first, and refuses those above the second (`SamplingParams`, 0.32.0)."""


class Sampling(BaseModel):
    """The settings of an answer, as an engine takes them."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    max_tokens: PositiveInt
    """Tokens of an answer at most."""
    sample_tokens: PositiveInt
    """Tokens of a prompt and its answer together at most."""
    temperature: float = Field(default=0.0, ge=0.0)
    """0 takes the likeliest token."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Only the likeliest tokens that have this much of the probability together are chosen from."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer; the one that did is its end."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end an answer, each its last token."""

    def room(self, n_prompt: int) -> int:
        """Return how many tokens an answer to a prompt of `n_prompt` tokens may have; none below 1.

        >>> sampling = Sampling(max_tokens=5, sample_tokens=12)
        >>> sampling.room(4), sampling.room(10)
        (5, 2)
        """
        return min(self.max_tokens, self.sample_tokens - n_prompt)


def temperature_expected(engine: str, temperature: float) -> str | None:
    """Return what an engine would take in the place of a temperature, `None` where it takes that one.

    >>> temperature_expected("vllm", 0.005), temperature_expected("vllm", 0.0)
    ('0, or from 0.01 to 2', None)
    """
    least, most = VLLM_TEMPERATURES
    if engine != "vllm" or temperature == 0 or least <= temperature <= most:
        return None
    return f"0, or from {least:g} to {most:g}"


def seed_of(run_seed: int, prompt_id: str, turn: int) -> int:
    """Return the seed of one answer, below 2**63: of what was asked, and so of no batch, worker or order.

    >>> seed_of(0, "ab", 0) == seed_of(0, "ab", 0), seed_of(0, "ab", 0) == seed_of(0, "ab", 1)
    (True, False)
    """
    digest = hashlib.sha256(f"strata.answer.v1\0{run_seed}\0{prompt_id}\0{turn}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
