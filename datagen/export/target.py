"""The target's model beside an export: the one that the states are of, for what its weights alone say."""

from typing import Any

from datagen.engines.architecture import read_config
from datagen.engines.model_files import locate, weights_of
from datagen.engines.settings import EngineSettings
from datagen.engines.target_head import TargetHead
from datagen.errors import ExportError
from schemas.problem import Problem
from schemas.schema import DType
from schemas.target import Target

_AFTER_HEAD = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
"""What some models do to logits behind their lm_head, by the fields of transformers' configs."""


def read_head(model: str, target: Target, dtype: DType) -> TargetHead:
    """Return the ends of the model, a folder or a hub id, that `target` says.

    Raises `ExportError` where its weights are others, or where more than a product makes its logits;
    `OpeningError` where they cannot be read.
    """
    files = locate(EngineSettings(model=model), with_weights=True)
    config = read_config(files.folder, trust_remote_code=False)
    problems = _after_head(config.get_text_config(decoder=True))
    weights = weights_of(files)
    if isinstance(weights, Problem):
        problems.append(weights)
    elif weights.method == target.weights.method and weights.sha256 != target.weights.sha256:
        message = (
            f"expected the weights of {target.model_id} ({target.weights.sha256[:12]}), which the states are "
            f"of, got {weights.sha256[:12]}"
        )
        repair = f"name {target.model_id} as the dataset's run did"
        problems.append(Problem(where=model, kind="weights", message=message, repair=repair))
    if problems:
        raise ExportError(f"the logits of {target.model_id} cannot be made with {model}", problems)
    return TargetHead.of(files.folder, dtype=dtype)


def _after_head(config: Any) -> list[Problem]:
    """Return what a model does to its logits behind the lm_head, which probabilities are other without."""
    found = {name: getattr(config, name, None) for name in _AFTER_HEAD}
    return [
        Problem(
            where=name,
            kind="logits",
            message=f"expected logits as the lm_head makes them, got a model that changes them ({value})",
            repair="make Automodel's cache with its own precompute_eagle3",
        )
        for name, value in found.items()
        if value not in (None, 1, 1.0)
    ]
