"""The demo's states with a part held out: a dataset beside it, of the same files.

Committed files are never written again, so the copy is links, and its versions are its own: `make demo` and
what else reads `data/demo` see nothing of them.
"""

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from datagen.planning.audit import audit_name
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.store.splits import assign
from deploy.demo.registry import DATA, DemoError
from deploy.demo.whole import making
from schemas.records import SplitRule

DEMO = DATA / "demo"
ROOT = DATA / "incident" / "states"
NAME = DEMO.name
RULE = SplitRule(name="incident", seed=2, fractions=(("train", 0.8), ("validation", 0.2)))
HELD_OUT = "held-out"


class States(NamedTuple):
    """Both as a person writes them: the dataset with its splits, and the conversations that are held out."""

    dataset: str
    held_out: str


def make_states() -> States:
    """Return the demo's states with their splits; raises `DemoError` when there is no demo yet."""
    if not DEMO.is_dir():
        raise DemoError(f"{DEMO}: expected the demo's dataset, found none; `make demo` makes it")
    with making(ROOT) as partial:
        if partial is not None:
            for name in (NAME, audit_name(NAME)):
                if (DATA / name).is_dir():
                    shutil.copytree(DATA / name, partial / name, copy_function=_link)
            _hold_out(Dataset.open(LocalDoor(partial), NAME))
    split = _split_version(Dataset.open(LocalDoor(ROOT), NAME))
    return States(f"{ROOT}/{NAME}@{split}", f"{ROOT}/{NAME}@{HELD_OUT}")


def _hold_out(dataset: Dataset) -> None:
    """Commit the splits, and behind them a version of the held-out conversations alone, by a name."""
    dataset.split([RULE])
    index = dataset.snapshot().index
    train = assign(index, RULE).positions("train")
    version = dataset.drop(index.at(int(position)).sample_id for position in train)
    dataset.name_version(HELD_OUT, version.number)


def _split_version(dataset: Dataset) -> int:
    """Return the version before the held-out one: the same samples as the demo's, with splits."""
    number = dataset.number(HELD_OUT)
    if number is None:
        raise DemoError(f"{ROOT}: expected a version {HELD_OUT}, found none; remove the folder and try again")
    return number - 1


def _link(source: str, place: str) -> Path:
    try:
        os.link(source, place)
    except OSError:
        # Another file system, or one without links.
        shutil.copy2(source, place)
    return Path(place)
