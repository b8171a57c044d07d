"""The tokens that end an answer, as a model's own files say it."""

import json
from pathlib import Path
from typing import Any

from datagen.engines.architecture import read_config
from datagen.engines.errors import OpeningError
from datagen.engines.model_files import locate
from datagen.engines.settings import EngineSettings
from schemas.problem import Problem

GENERATION_CONFIG = "generation_config.json"


def ending_token_ids(settings: EngineSettings) -> tuple[int, ...]:
    """Return the `eos_token_id` in `generation_config.json`, else in `config.json`, if any.

    Raises `OpeningError` when the model's files are not there, or say no ids.
    """
    folder = locate(settings, with_weights=False).folder
    file = folder / GENERATION_CONFIG
    said = _read(file).get("eos_token_id") if file.is_file() else None
    if said is None:
        config = read_config(folder, trust_remote_code=settings.trust_remote_code)
        said = getattr(config.get_text_config(decoder=True), "eos_token_id", None)
    ids = said if isinstance(said, list) else [] if said is None else [said]
    if not all(isinstance(one, int) and one >= 0 for one in ids):
        raise _refusal(file, f"expected eos_token_id to be token ids, got {said!r}")
    return tuple(sorted(set(ids)))


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _refusal(file, f"expected JSON, got: {error}") from error
    if not isinstance(content, dict):
        raise _refusal(file, f"expected an object, got {type(content).__name__}")
    return content


def _refusal(file: Path, message: str) -> OpeningError:
    return OpeningError(
        "it cannot be said what ends an answer", [Problem(where=str(file), kind="config", message=message)]
    )
