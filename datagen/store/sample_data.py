"""One sample in memory, as it is handed to the writer of a part."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SampleData:
    """The tensors and token columns of one conversation, unpadded and unshifted; T tokens, H the width.

    `tokens` are the schema's token columns by name, `[T]`; `tensors` its tensors by name, `[T, H]`
    C-contiguous; `norms` the L2 norm of each row of each tensor, `[T]` float32. `source` names where the
    prompt was read, `text` is its conversation as canonical JSON, where it is to be kept.
    """

    sample_id: str
    prompt_id: str
    conversation_id: str
    source: str
    tokens: Mapping[str, NDArray[np.generic]]
    tensors: Mapping[str, NDArray[np.generic]]
    norms: Mapping[str, NDArray[np.float32]]
    text: str | None = None

    @property
    def n_tokens(self) -> int:
        """T, the number of token ids."""
        return len(self.tokens["input_ids"])
