"""Engines of a real vLLM, kept open from test to test: starting one takes 10 to 30 seconds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings, VllmSettings
from datagen.engines.vllm_running import VllmEngine
from schemas.schema import DType, Schema

NAMES = ("embed", "layer2", "final", "final_normed")


def settings(folder: Path, dtype: DType, **vllm: Any) -> EngineSettings:
    """Return the settings of a small vLLM."""
    sizes = {"max_model_len": 256, "kv_cache_gib": 0.5, "max_num_seqs": 32, "max_num_batched_tokens": 256}
    return EngineSettings(name="vllm", model=str(folder), dtype=dtype, vllm=VllmSettings(**{**sizes, **vllm}))


def start(folder: Path, dtype: DType, names: Sequence[str] = NAMES, **vllm: Any) -> VllmEngine:
    """Open an engine of the model in `folder`."""
    choice = settings(folder, dtype, **vllm)
    engine = open_engine(choice, Schema.declare(read_target(choice), names, dtype))
    assert isinstance(engine, VllmEngine)
    return engine


class Kept:
    """One engine, opened anew where a test has closed it."""

    def __init__(self, folder: Path, dtype: DType, names: Sequence[str] = NAMES, **vllm: Any) -> None:
        self._arguments = (folder, dtype, names)
        self._vllm = vllm
        self._engine: VllmEngine | None = None

    def engine(self) -> VllmEngine:
        """Return the engine, open."""
        if self._engine is None or self._engine.closed:
            self._engine = start(*self._arguments, **self._vllm)
        return self._engine

    def close(self) -> None:
        """Close it, if it is open."""
        if self._engine is not None:
            self._engine.close()
