"""Keeps vLLM's scheduler from taking drafts: extraction goes by speculative decoding, and drafts nothing."""

from typing import Any

from datagen.engines.errors import OpeningError
from schemas.problem import Problem

TO_THE_SCHEDULER = ("llm_engine", "engine_core", "engine_core", "scheduler")
TAKES_DRAFTS = "update_draft_token_ids"


def take_no_drafts(llm: Any, release: str) -> None:
    """Let the scheduler take none of what extraction "drafts", which is the token that was just said.

    Verified with a temperature (0.32.0, CPU) it was taken far too often, in answers that no seed repeated.

    Raises `OpeningError` where this vLLM has no such place: then it would be set, and nothing would heed it.
    """
    owner = llm
    for name in (*TO_THE_SCHEDULER, TAKES_DRAFTS):
        if not hasattr(owner, name):
            way = ".".join((*TO_THE_SCHEDULER, TAKES_DRAFTS))
            message = f"expected {way}, which takes drafts, got a vLLM {release} without {name}"
            repair = "install a release that was tried: vllm 0.32.0"
            raise OpeningError(
                "this vLLM cannot be told to take no drafts",
                [Problem(where="engine.name", kind="package", message=message, repair=repair)],
            )
        if name != TAKES_DRAFTS:
            owner = getattr(owner, name)
    setattr(owner, TAKES_DRAFTS, _take_none)


def _take_none(_drafts: Any) -> None:
    """Leave the drafts of a step aside."""
