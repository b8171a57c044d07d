"""Digests of a tokenizer and of its chat template, over what the files say, not how they are laid out.

The chat template is digested apart: it may be changed while every token keeps its id.
"""

import json
from pathlib import Path
from typing import Any

from schemas.problem import Problem
from schemas.record import canonical_json, sha256_hex

_WHOLE = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "spiece.model",
    "tiktoken.model",
    "added_tokens.json",
    "special_tokens_map.json",
)
_CONFIG = "tokenizer_config.json"
# What says where the tokenizer lay, which class read it or what a template is, and nothing of its ids.
_NOT_OF_THE_IDS = frozenset(
    {
        "chat_template",
        "name_or_path",
        "tokenizer_class",
        "processor_class",
        "auto_map",
        "is_local",
        "local_files_only",
        "model_max_length",
    }
)


def tokenizer_digest(folder: Path) -> str | Problem:
    """Return the sha256 of the tokenizer's files, or what is wrong with them."""
    files = [folder / name for name in _WHOLE if (folder / name).is_file()]
    files += sorted(folder.glob("*.tiktoken"))
    if not files:
        return Problem(
            where=str(folder),
            kind="tokenizer",
            message=f"expected a tokenizer ({', '.join(_WHOLE[:2])}, ...), got none in the folder",
            repair="save the tokenizer beside the weights",
        )
    content: dict[str, object] = {file.name: sha256_hex(file.read_bytes()) for file in files}
    config = _json(folder / _CONFIG)
    if isinstance(config, Problem):
        return config
    content[_CONFIG] = {key: value for key, value in config.items() if key not in _NOT_OF_THE_IDS}
    return sha256_hex(canonical_json(content))


def chat_template_digest(folder: Path) -> str | Problem | None:
    """Return the sha256 of the chat template's text (UTF-8), `None` where the model has none.

    `chat_template.jinja` goes before `chat_template.json` and the key in `tokenizer_config.json`, as in
    transformers. Several named templates are digested together.
    """
    templates: dict[str, str] = {}
    for name in (_CONFIG, "chat_template.json"):
        config = _json(folder / name)
        if isinstance(config, Problem):
            return config
        templates.update(_named(config.get("chat_template")))
    if (file := folder / "chat_template.jinja").is_file():
        templates["default"] = file.read_text("utf-8")
    for file in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        templates[file.stem] = file.read_text("utf-8")
    return template_digest(templates)


def template_digest(templates: dict[str, str]) -> str | None:
    """Return the digest of templates by name: of the text alone where `default` is the only one."""
    if not templates:
        return None
    if set(templates) == {"default"}:
        return sha256_hex(templates["default"].encode("utf-8"))
    return sha256_hex(canonical_json(templates))


def _named(value: object) -> dict[str, str]:
    if isinstance(value, str):
        return {"default": value}
    if isinstance(value, list):
        return {str(item["name"]): str(item["template"]) for item in value}
    return {}


def _json(file: Path) -> dict[str, Any] | Problem:
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        return Problem(where=str(file), kind="json", message=f"expected JSON, got {error}")
    if not isinstance(value, dict):
        return Problem(
            where=str(file), kind="json", message=f"expected a JSON object, got {type(value).__name__}"
        )
    return value
