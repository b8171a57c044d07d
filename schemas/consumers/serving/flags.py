"""Serving flags as a value: the numbers that run, whatever was written, and what a person should know.

A *chain* drafts one token a step; a *tree* keeps `topk` alternatives a step, and some of them are verified.
`draft_tokens` is SGLang's count: it includes the token that the draft continues, which is verified too.
"""

from pydantic import Field

from schemas.problem import Problem
from schemas.record import Record


class ServingFlags(Record):
    """What runs; `None` for what the flags do not decide.

    >>> flags = ServingFlags(server="sglang", algorithm="EAGLE3", steps=3, topk=1, draft_tokens=4)
    >>> flags.proposed, flags.verified
    (3, 4)
    """

    server: str
    version: str | None = None
    algorithm: str | None = None
    """The server's own word: `EAGLE3` in SGLang, `eagle3` in vLLM; `None` where nothing is drafted."""
    draft_model: str | None = None
    steps: int | None = None
    topk: int | None = None
    draft_tokens: int | None = None
    window: int | None = None
    """Tokens that the draft looks back on, where a flag says so."""
    equivalent: str | None = None
    """The flags with which the other server does the same."""
    problems: tuple[Problem, ...] = Field(default=())

    @property
    def proposed(self) -> int | None:
        """Tokens proposed a step of the target; for a chain vLLM's `num_speculative_tokens`."""
        return None if self.draft_tokens is None else self.draft_tokens - 1

    @property
    def verified(self) -> int | None:
        """Tokens that the target runs over a step: the proposed ones and the one that they continue."""
        return self.draft_tokens

    @property
    def longest(self) -> int | None:
        """Tokens that one step of the target can yield at most: a whole chain, and the target's own next."""
        return None if self.steps is None else self.steps + 1

    def __str__(self) -> str:
        if self.algorithm is None:
            return "nothing is drafted"
        if self.steps is None or self.draft_tokens is None:
            return f"{self.algorithm}: the flags do not decide how many tokens are drafted"
        shape = "chain" if self.topk == 1 else f"tree of {self.topk} a step"
        return (
            f"{self.algorithm}: a {shape}, {_counted(self.steps, 'step')}, "
            f"{_counted(self.proposed or 0, 'token')} proposed and {self.verified} verified a step, at most "
            f"{self.longest} gained"
        )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
