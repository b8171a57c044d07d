"""What the incident's script did: four tensors a token, in a list, each where it happened to come.

The prepared conversations are right, and every shape is. The trainer takes all but the last slot as the input
and the last as the target: `embed` has moved every input by one, and the target is a layer of the middle.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from deploy.demo.whole import making
from schemas.reference import parse_reference

SAVED = ("embed", "layer2", "layer15", "layer27")
"""What it saved, in the order in which it saved it; the list has no names."""
PREPARED = ("*.arrow", "dataset_info.json", "state.json", "token_freq.pt")
ROWS = "strata_rows.jsonl"
Slots = Callable[[Mapping[str, torch.Tensor]], Sequence[torch.Tensor]]
"""Makes a list's slots `[T, H]` of a sample's tensors `[T, H]` by name."""


def write_positional(dataset: str, right: Path, place: Path) -> None:
    """Write at `place` what the script would have, on the prepared conversations of an export, `right`."""
    write_list(dataset, right, place, SAVED, lambda tensors: [tensors[name] for name in SAVED])


def write_list(dataset: str, right: Path, place: Path, names: Sequence[str], slots: Slots) -> None:
    """Write at `place` a list of what `slots` makes of the tensors `names`, a file a row of `right`."""
    reference = parse_reference(dataset)
    snapshot = Dataset.open(open_door(reference.root), reference.dataset).snapshot(reference.version)
    with making(place) as partial:
        if partial is None:
            return
        (partial / "hidden_states").mkdir(parents=True)
        for pattern in PREPARED:
            for file in right.glob(pattern):
                shutil.copy2(file, partial / file.name)
        for line in (right / ROWS).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            sample = snapshot.read(row["sample_id"], names)
            states = slots({name: _tensor(sample.tensors[name]) for name in names})
            ids = torch.from_numpy(sample.tokens["input_ids"].astype(np.int64))
            save_file(
                {"hidden_states": torch.stack(list(states), dim=1), "token_ids": ids},
                partial / "hidden_states" / f"hs_{row['row']}.safetensors",
            )


def _tensor(states: NDArray[np.generic]) -> torch.Tensor:
    return torch.from_numpy(states.view(np.int16)).view(torch.bfloat16)
