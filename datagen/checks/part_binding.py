"""The samples of a part, bound to their ids one after another: whose are the states that are not their own?

Refused at sight is what says what another sample of the part goes on with. What merely does not stand out is
held back: a second pass decides, as far as that stays cheap.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from datagen.checks.binding import LEAST_ROWS, Binding, Look, picked
from datagen.checks.calibration import Calibration
from datagen.checks.recapture import bears_witness, beginning, copied, first_tokens, recapture_problems
from datagen.engines.base import Capture
from datagen.prompts.prompt import Prompt
from schemas.problem import Problem
from schemas.schema import Schema

NEIGHBOURS = 64
"""Samples that are asked whether states are theirs: those captured just before and after."""
SEARCHES = 8
"""Searches of a part that may find nobody: where all text is hard to foresee, they would cost too much."""
SECOND_SHARE = 0.005
"""Of a part's tokens, those that a second pass over samples held back may take."""
SECOND_TOKENS = 48
"""Tokens of one at least; as many more as reach its fourth row that was looked at."""


@dataclass
class BindingCounts:
    """What came of the samples that were looked at; `again` were decided by a second pass."""

    bound: int = 0
    again: int = 0
    unbound: int = 0

    def __add__(self, other: "BindingCounts") -> "BindingCounts":
        return BindingCounts(self.bound + other.bound, self.again + other.again, self.unbound + other.unbound)


@dataclass
class PartBinding:
    """Binds the samples of a part, whose prompts are given in the order of capture."""

    binding: Binding
    schema: Schema
    calibration: Calibration
    prompts: Sequence[Prompt]
    counts: BindingCounts = field(default_factory=BindingCounts)
    held: list[tuple[Prompt, Capture]] = field(default_factory=list)
    """Samples that a second pass decides about; their memory is their own."""

    def __post_init__(self) -> None:
        self._places = {prompt.sample_id: place for place, prompt in enumerate(self.prompts)}
        self._tokens_left = int(SECOND_SHARE * sum(prompt.n_tokens for prompt in self.prompts))
        self._searches_left = SEARCHES
        self._kinds_held: Counter[str] = Counter()

    def look(self, prompt: Prompt, capture: Capture) -> Problem | Literal["passed", "held"]:
        """Return why a sample's states are not of its tokens; a doubtful one may be held for another pass."""
        wrong = self.binding.embed_problem(self.schema, capture)
        if wrong is not None:
            return wrong
        if self.binding.states is None:
            self.counts.unbound += 1
            return "passed"
        look = self.binding.look(prompt, capture)
        if look.kind == "own":
            self.counts.bound += 1
            return "passed"
        whose = self._whose(prompt, capture, look) if look.kind == "untold" else None
        if whose is not None:
            return whose
        if look.kind != "few" and self._hold(prompt, capture, look):
            return "held"
        self.counts.unbound += 1
        return "passed"

    def _whose(self, prompt: Prompt, capture: Capture, look: Look) -> Problem | None:
        """Return whose states they are, where a sample near by is the one."""
        place = self._places[prompt.sample_id]
        if not self._searches_left:
            return None
        first = max(0, min(place - NEIGHBOURS // 2, len(self.prompts) - NEIGHBOURS - 1))
        best: tuple[float, Prompt] | None = None
        for other in self.prompts[first : first + NEIGHBOURS + 1]:
            found = self.binding.says(capture, other) if other is not prompt else None
            if found is not None and (best is None or found > best[0]):
                best = found, other
        if best is None:
            self._searches_left -= 1
            return None
        message = (
            "expected states of its own tokens, got states that predict another sample's: those of "
            f"{best[1].source} stand out by {best[0]:.1f} deviations, its own by {look.own:.1f} "
            f"({self.binding.typical:.1f} are usual)"
        )
        return Problem(where=self.binding.states or "", kind="binding", message=message)

    def _hold(self, prompt: Prompt, capture: Capture, look: Look) -> bool:
        """Keep a sample for a second pass, where there is room for it: for the first of a kind there is."""
        cost = self.beginning(prompt).n_tokens
        if self._kinds_held[look.kind] and cost > self._tokens_left:
            return False
        self._kinds_held[look.kind] += 1
        self._tokens_left -= cost
        self.held.append((prompt, copied(capture)))
        return True

    def beginning(self, prompt: Prompt) -> Prompt:
        """Return what is captured again of a sample that is held."""
        at = picked(prompt.input_ids, prompt.loss_mask, prompt.n_tokens)
        reach = int(at[LEAST_ROWS // 2 - 1]) + 2 if len(at) >= LEAST_ROWS else 0
        return beginning(prompt, self.calibration, max(SECOND_TOKENS, reach))

    def second_pass(self, prompt: Prompt, first: Capture, again: Capture) -> list[Problem]:
        """Return what a second pass over the beginning of a sample that was held says of it, and count it."""
        asked = self.beginning(prompt)
        if not bears_witness(self.schema, self.calibration, asked, again):
            self.counts.unbound += 1
            return []
        self.counts.again += 1
        return recapture_problems(self.schema, first_tokens(first, asked.n_tokens), again)
