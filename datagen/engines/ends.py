"""The ends of an engine's model: those that it has loaded, else those of the model's files."""

import numpy as np
import torch
from numpy.typing import NDArray

from datagen.adapters.tensor_arrays import array_of, tensor_of
from datagen.engines.architecture import read_config
from datagen.engines.base import Ends, EndsTelling, Engine
from datagen.engines.errors import OpeningError
from datagen.engines.model_files import locate
from datagen.engines.settings import EngineSettings
from datagen.engines.target_head import TargetHead


def ends_of(engine: Engine, settings: EngineSettings) -> Ends:
    """Return the ends of the model that an engine runs; raises `OpeningError` where they cannot be had."""
    if isinstance(engine, EndsTelling):
        return engine.ends()
    if settings.name == "synthetic":
        raise OpeningError("the engine synthetic has no model whose head could be asked")
    folder = locate(settings, with_weights=True).folder
    config = read_config(folder, trust_remote_code=settings.trust_remote_code)
    return FilesEnds(TargetHead(folder, config, settings.dtype))


class FilesEnds:
    """The ends of a model from its files; see `datagen.engines.base.Ends`."""

    def __init__(self, head: TargetHead) -> None:
        self._head = head

    def embed(self, token_ids: NDArray[np.integer]) -> NDArray[np.generic]:
        return np.asarray(array_of(self._head.embed(np.asarray(token_ids, np.int32))))

    def norm(self, final: NDArray[np.generic]) -> NDArray[np.float32]:
        return np.asarray(self._head.norm(tensor_of(final)).float().numpy())

    def head(self, token_ids: NDArray[np.integer]) -> NDArray[np.float32]:
        ids = torch.from_numpy(np.asarray(token_ids, np.int64))
        return np.asarray(self._head.lm_head.index_select(0, ids).float().numpy())
