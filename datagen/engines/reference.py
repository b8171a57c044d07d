"""transformers as the reference of another engine: whether it can run beside it, and with which settings.

It runs on the CPU: the engine has the GPU's memory to itself.
"""

import json
from pathlib import Path

from datagen.engines.errors import OpeningError
from datagen.engines.model_files import locate
from datagen.engines.settings import EngineSettings
from schemas.target import Target

SPARE = 1.25
"""Memory a model takes over its weights' bytes, activations of a short sample included."""
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def reference_settings(settings: EngineSettings) -> EngineSettings:
    """Return the settings of the engine `hf` for the same model, on the CPU."""
    return settings.model_copy(update={"name": "hf", "device": "cpu", "device_map": None})


def why_no_reference(settings: EngineSettings, target: Target) -> str | None:
    """Return why transformers cannot run the model beside the engine, `None` where it can."""
    if settings.model is None:
        return "there is no model that transformers could run"
    if target.quantisation is not None:
        return f"the weights are quantised ({target.quantisation})"
    try:
        folder = locate(settings, with_weights=True).folder
    except OpeningError as error:
        return error.headline
    need = int(SPARE * sum(file.stat().st_size for file in folder.glob("*.safetensors")))
    need *= 2 if settings.dtype == "float32" else 1
    have = free_memory()
    if have is None:
        return "how much memory is free is not known here"
    return None if need <= have else f"it takes {need:,} bytes of memory, and {have:,} are free"


def has_experts(settings: EngineSettings) -> bool:
    """Say whether a model routes tokens to experts, as its `config.json` says."""
    if settings.model is None:
        return False
    content = json.loads((locate(settings, with_weights=False).folder / "config.json").read_text("utf-8"))
    text = content.get("text_config", content)
    return any(isinstance(text.get(key), int) and text[key] > 1 for key in _EXPERTS)


def free_memory() -> int | None:
    """Return the bytes of memory that this process may still take; `None` where Linux does not say."""
    free = _of_machine()
    limit, used = _number("/sys/fs/cgroup/memory.max"), _number("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        rest = max(0, limit - used)
        free = rest if free is None else min(free, rest)
    return free


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _number(file: str) -> int | None:
    try:
        text = Path(file).read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # `max`: no limit
