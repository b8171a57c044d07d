"""SpecForge's own code: which layers it captures, how it reads its records, and how it shifts a sample."""

from types import SimpleNamespace
from typing import Any

import torch

from tests.oracle.borrow import borrow
from tests.oracle.wheels import source


def capture_ids(
    version: str, draft_config: dict[str, Any], n_layers: int, given: list[int] | None = None
) -> list[int]:
    """The ids that it hands to SGLang. Raises ValueError where it refuses them."""
    path = source("specforge", version) / "algorithms" / "model_providers.py"
    config = SimpleNamespace(model=SimpleNamespace(aux_hidden_state_layer_ids=given))
    target = SimpleNamespace(num_hidden_layers=n_layers)
    return list(borrow(path, "resolve_eagle_capture_layers")(config, draft_config, target))


def read(version: str, record: dict[str, torch.Tensor], max_len: int) -> dict[str, torch.Tensor]:
    """An offline record as training sees it."""
    path = source("specforge", version) / "algorithms" / "eagle3" / "data.py"
    return borrow(path, "normalize_offline_sample", {"torch": torch})(record, max_len)  # type: ignore[no-any-return]


def shift(version: str, length: int = 6) -> dict[str, list[int]]:
    """What `TargetHead.preprocess` makes of a sample in which all at position i is the number i + 1."""
    path = source("specforge", version) / "modeling" / "target" / "target_head.py"
    padding = borrow(source("specforge", version) / "utils.py", "padding")
    ids = torch.arange(1, length + 1)[None]
    target = torch.arange(1, length + 1)[None, :, None]
    head = borrow(path, "TargetHead.preprocess", {"padding": padding})
    shifted = head(None, ids, target, ids.clone())
    return dict(zip(("ids", "target", "mask"), (part.flatten().tolist() for part in shifted), strict=True))
