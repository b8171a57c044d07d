"""What a run is asked for: the token ids of one sample, which are trained, and where they came from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, slots=True)
class Given:
    """Token ids between two answers: `ending`, unless the target ended its answer itself, then `ids`."""

    ending: NDArray[np.int32]
    ids: NDArray[np.int32]


@dataclass(frozen=True, eq=False, slots=True)
class Ask:
    """What the target is asked for behind the ids of a prompt: an answer, and one behind each of `following`.

    `turns` is the canonical JSON of the messages, answers with the content null, `tools` that of the tools;
    `None` where prompts are tokens. A sample of this is expected to have `expected_tokens`, and has
    `most_tokens` at most.
    """

    following: tuple[Given, ...]
    turns: str | None
    tools: str | None
    expected_tokens: int
    most_tokens: int


@dataclass(frozen=True, eq=False, slots=True)
class Prompt:
    """The token ids `[T]` of one sample, unpadded, with their loss mask `[T]` (1: trained).

    `text` is the canonical JSON of the messages, kept as provenance; `None` where there were none. With an
    `ask` the ids are those before the first answer, none is trained, and `sample_id` is the prompt's own
    id: that of the sample is not known before it is answered.
    """

    source: str
    conversation_id: str
    input_ids: NDArray[np.int32]
    loss_mask: NDArray[np.uint8]
    prompt_id: str
    sample_id: str
    text: str | None = None
    ask: Ask | None = None

    @property
    def n_tokens(self) -> int:
        return len(self.input_ids)

    @property
    def n_planned(self) -> int:
        """Tokens of the sample: those it has, or those expected of one that is not answered yet."""
        return self.ask.expected_tokens if self.ask else len(self.input_ids)

    @property
    def n_given(self) -> int:
        """Tokens that are given: those that the target does not choose itself."""
        following = self.ask.following if self.ask else ()
        return len(self.input_ids) + sum(len(given.ids) for given in following)

    @property
    def n_most(self) -> int:
        """Tokens of the sample at most."""
        return self.ask.most_tokens if self.ask else len(self.input_ids)

    @property
    def n_trained(self) -> int:
        return int(np.count_nonzero(self.loss_mask))
