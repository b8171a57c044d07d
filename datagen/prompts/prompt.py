"""What a run is asked for: the token ids of one sample, which are trained, and where they came from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, slots=True)
class Prompt:
    """The token ids `[T]` of one sample, unpadded, with their loss mask `[T]` (1: trained).

    `text` is the canonical JSON of the messages, kept as provenance; `None` where there were none.
    """

    source: str
    conversation_id: str
    input_ids: NDArray[np.int32]
    loss_mask: NDArray[np.uint8]
    prompt_id: str
    sample_id: str
    text: str | None = None

    @property
    def n_tokens(self) -> int:
        return len(self.input_ids)

    @property
    def n_trained(self) -> int:
        return int(np.count_nonzero(self.loss_mask))
