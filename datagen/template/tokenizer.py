"""A target's tokenizer, from its folder or hub id."""

from typing import Any

from transformers import AutoTokenizer

from datagen.template.errors import TemplateError
from schemas.problem import Problem


def load_tokenizer(model: str, *, revision: str | None = None, trust_remote_code: bool = False) -> Any:
    """Return the tokenizer of a model; raises `TemplateError` when there is none that can be loaded."""
    try:
        return AutoTokenizer.from_pretrained(model, revision=revision, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, ImportError) as error:
        problem = Problem(where=model, kind="tokenizer", message=f"cannot be loaded: {error}")
        raise TemplateError("the tokenizer cannot be used", [problem]) from error
