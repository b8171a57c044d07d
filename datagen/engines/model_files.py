"""Where a model's files lie: a folder, or a hub id's snapshot in the hub's cache.

A folder is never asked of the hub. A hub id is looked up in the cache first, and the network is used only for
what is not there.
"""

import re
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import HfApi, snapshot_download

from datagen.engines.errors import OpeningError
from datagen.engines.settings import EngineSettings
from datagen.engines.weights import digest_of, missing_shards, weights_digest
from schemas.problem import Problem
from schemas.target import WeightsDigest

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_SMALL = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.py", "additional_chat_templates/*")
_WEIGHTS = ("*.safetensors",)


class ModelFiles(NamedTuple):
    """A model's folder, and the name and commit that it goes by."""

    folder: Path
    model_id: str
    revision: str | None
    from_hub: bool


def locate(settings: EngineSettings, *, with_weights: bool) -> ModelFiles:
    """Return where the model's files lie; those of a hub id are downloaded where the cache lacks them.

    Raises `OpeningError` for a model that is neither a folder with `config.json` nor on the hub.
    """
    model = settings.model or ""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return _local(folder, settings)
    if not _HUB_ID.fullmatch(model):
        raise _refusal(model, "expected a folder or a hub id (OWNER/NAME), got no such folder")
    patterns = [*_SMALL, *(_WEIGHTS if with_weights else ())]
    try:
        found = Path(snapshot_download(model, revision=settings.revision, local_files_only=True))
        whole = (found / "config.json").is_file() and (not with_weights or _has_weights(found))
    except (OSError, ValueError):
        whole = False
    try:
        if not whole:
            found = Path(snapshot_download(model, revision=settings.revision, allow_patterns=patterns))
    except (OSError, ValueError) as error:
        raise _refusal(
            model, f"expected a folder or a hub id, got no such folder, and the hub says: {error}"
        ) from error
    if not (found / "config.json").is_file():
        raise _refusal(model, "expected a repository with config.json, got none")
    return ModelFiles(found, model, found.name, from_hub=True)


def weights_of(files: ModelFiles) -> WeightsDigest | Problem:
    """Return the digest of a model's weights; of a hub id that is not in the cache, by the hub's own list."""
    if not files.from_hub or _has_weights(files.folder):
        return weights_digest(files.folder)
    try:
        siblings = HfApi().model_info(files.model_id, revision=files.revision, files_metadata=True).siblings
    except (OSError, ValueError) as error:
        return Problem(
            where=files.model_id, kind="weights", message=f"expected the hub's file list, got {error}"
        )
    hashes: dict[str, str | None] = {
        sibling.rfilename: sibling.lfs.sha256
        for sibling in siblings or ()
        if sibling.lfs is not None
        and sibling.rfilename.endswith(".safetensors")
        and "/" not in sibling.rfilename
    }
    if not hashes:
        return Problem(where=files.model_id, kind="weights", message="expected *.safetensors files, got none")
    return digest_of("hub_file_hashes", hashes)


def _local(folder: Path, settings: EngineSettings) -> ModelFiles:
    if not (folder / "config.json").is_file():
        raise _refusal(str(settings.model), "expected config.json in the folder, got none")
    if settings.revision is not None:
        raise _refusal(
            str(settings.model), f"expected no revision for a folder, got revision {settings.revision!r}"
        )
    # The folder's own name: where it lies differs between hosts, and the identity is in the digests.
    return ModelFiles(folder, folder.resolve().name, None, from_hub=False)


def _has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors")) and not missing_shards(folder)


def _refusal(model: str, message: str) -> OpeningError:
    return OpeningError(
        "the model cannot be found",
        [
            Problem(
                where=model or "engine.model",
                kind="model",
                message=message,
                repair="give the path of a folder that holds config.json, a tokenizer and safetensors files",
            )
        ],
    )
