"""Records out of HF `datasets`: folders saved by `save_to_disk`, and datasets of the hub."""

import importlib
from collections.abc import Iterator
from typing import Any

from datagen.prompts.errors import PromptError
from datagen.prompts.files import Located
from datagen.prompts.locate import HUB_ID, HUB_PREFIX, Source
from schemas.problem import Problem


def dataset_records(source: Source, split: str | None) -> Iterator[Located]:
    """Yield the rows of a dataset; rows are counted from 1.

    Raises `PromptError` when it cannot be opened, or has several splits and none was chosen.
    """
    # Loaded only here: it takes seconds, and brings pandas, which no other source needs.
    datasets = importlib.import_module("datasets")
    try:
        opened = _open(datasets, source, split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        problem = Problem(where=source.name, kind="dataset", message=f"cannot be opened: {error}")
        raise PromptError("the prompts cannot be read", [problem]) from error
    for number, row in enumerate(_one_split(opened, source, split), 1):
        yield f"{source.name}:{number}", dict(row)


def _open(datasets: Any, source: Source, split: str | None) -> Any:
    if source.kind == "dataset_folder":
        return datasets.load_from_disk(source.path)
    hub_id = HUB_ID.fullmatch(source.path.removeprefix(HUB_PREFIX))
    if hub_id is None:
        raise ValueError("expected hf://owner/name[@revision]")
    return datasets.load_dataset(hub_id["id"], revision=hub_id["revision"], split=split)


def _one_split(opened: Any, source: Source, split: str | None) -> Any:
    """Return the rows of one split; raises `PromptError` when it is not clear which."""
    if not isinstance(opened, dict):
        if split is None or source.kind == "hub" or str(opened.split) == split:
            return opened
        there = [str(opened.split)] if opened.split else []
    elif split is not None and split in opened:
        return opened[split]
    elif split is None and len(opened) == 1:
        return next(iter(opened.values()))
    else:
        there = sorted(opened)
    problem = Problem(
        where=source.name,
        kind="split",
        message=f"expected a split out of {', '.join(there) or '(not divided)'}, got {split or 'none'}",
        repair="set prompts.split",
    )
    raise PromptError("the prompts cannot be read", [problem])
