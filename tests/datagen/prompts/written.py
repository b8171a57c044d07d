"""Prompt files that the tests write, and readings of them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from datagen.prompts import Conversation, Prompt, PromptSettings, PromptStats, make_prompts, read
from datagen.template.chat import ChatTemplate
from schemas.records import QuarantinedSample


def jsonl(path: Path, records: Iterable[object]) -> Path:
    """Write records as JSON Lines; a `str` is written as it is."""
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def talk(*contents: str, **fields: Any) -> dict[str, Any]:
    """Return a record of `messages`: a question and an answer in turn."""
    roles = ("user", "assistant")
    return fields | {
        "messages": [{"role": roles[at % 2], "content": text} for at, text in enumerate(contents)]
    }


def reading(
    path: Path | str, **settings: Any
) -> tuple[list[Conversation], list[QuarantinedSample], PromptStats]:
    """Return what `read` makes of a path."""
    stats = PromptStats("run")
    items = list(read(PromptSettings(path=str(path), **settings), stats))
    return (
        [item for item in items if isinstance(item, Conversation)],
        [item for item in items if isinstance(item, QuarantinedSample)],
        stats,
    )


def making(
    path: Path | str, template: ChatTemplate | None = None, vocab_size: int = 50_000, **settings: Any
) -> tuple[list[Prompt], list[QuarantinedSample], PromptStats]:
    """Return what `make_prompts` makes of a path, and check that every record is accounted for."""
    stats = PromptStats("run")
    items = list(make_prompts(PromptSettings(path=str(path), **settings), template, vocab_size, stats))
    prompts = [item for item in items if isinstance(item, Prompt)]
    quarantined = [item for item in items if isinstance(item, QuarantinedSample)]
    assert stats.read == stats.kept + stats.duplicates + stats.n_quarantined
    assert stats.kept == len(prompts)
    assert stats.n_quarantined == len(quarantined)
    assert all(sample.run_id == "run" for sample in quarantined)
    return prompts, quarantined, stats
