"""What a worker that failed is tried with: a sample that was made before, else the shortest that there are.

A failure alone does not say whether the unit is bad or the engine. A sample known to be good does. Where none
is known yet, several are taken in turn, since one of them may be the bad one.
"""

from collections import deque
from collections.abc import Sequence

from datagen.planning.units import Unit
from datagen.prompts.prompt import Prompt
from datagen.worker.making import UnitResult

UNKNOWN = 3
"""Samples that are tried in turn while none is known to be good."""
NUMBER = "trial"


class Trials:
    """The samples to try with; `made_before` are known to be good, `others` are not."""

    def __init__(self, made_before: Sequence[Prompt] = (), others: Sequence[Prompt] = ()) -> None:
        self._known = bool(made_before)
        self._prompts = deque(_shortest(made_before, 1) or _shortest(others, UNKNOWN))

    def unit(self) -> Unit | None:
        """Return the unit of one sample to try with next, `None` where there is no sample at all."""
        return Unit(NUMBER, (self._prompts[0],)) if self._prompts else None

    def failed(self) -> None:
        """Take another sample the next time, where none is known to be good."""
        self._prompts.rotate(-1)

    def made(self, unit: Unit, result: UnitResult) -> None:
        """Note what was made of a unit: from the first on, a sample is known to be good."""
        if self._known or result.part is None:
            return
        gone = {row.prompt_id for row in result.quarantined} | {one.prompt_id for one in result.unfinished}
        good = [prompt for prompt in unit.prompts if prompt.prompt_id not in gone]
        if good:
            self._known = True
            self._prompts = deque(_shortest(good, 1))


def _shortest(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    return sorted(prompts, key=lambda prompt: (prompt.n_planned, prompt.prompt_id))[:count]
