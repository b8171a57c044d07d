"""speculators' own arguments against a prepared folder: completed by what it says, refused where they differ.

The words are read by the trainer's own parser, its `--config` file included, so that what is judged here is
what it will go by. Source: `train/config` of release 0.9.0.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datagen.store.trainer_rows import keeps_conversations, train_ratio
from schemas.problem import Problem
from schemas.wiring import Wiring
from service.trainers.errors import TrainerError
from service.trainers.prepared import Prepared
from service.trainers.speculators_backend import NAME, SOURCE_FLAG

TYPES = ("eagle3", "peagle", "dflash", "dflash2", "dspark", "xpress")
"""The drafts whose input is the states of `--target-layer-ids`, side by side; `mtp` takes the last alone."""
IDS_IN_CONFIG = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True)
class Settings:
    """The trainer's settings by name, and which of them somebody said, by a flag or in a file."""

    values: Mapping[str, Any]
    said: frozenset[str]


def completed(words: Sequence[str], settings: Settings, prepared: Prepared, source: str) -> list[str]:
    """Return the words with what they lack; raises `TrainerError` for rows that are cut in a wrong place.

    The settings contradict nothing: `contradictions` says no first.
    """
    n_rows, n_train = prepared.n_rows, prepared.n_train
    added: dict[str, Sequence[object]] = {
        "data_path": [prepared.folder],
        "hidden_states_backend": [NAME],
        "target_layer_ids": prepared.meant.card.wiring.boundaries,
        "on_missing": ["raise"],
        "train_data_ratio": [train_ratio(n_train, n_rows)],
    }
    if problems := [*_wrong_cut(settings, prepared)]:
        raise TrainerError("the trainer is told to cut the rows in a wrong place", problems)
    missing = [
        piece
        for name, values in added.items()
        if name not in settings.said
        for piece in (_flag(name), *map(str, values))
    ]
    return [*words, *missing, SOURCE_FLAG, source]


def contradictions(settings: Settings, wiring: Wiring, folder: Path) -> Iterator[Problem]:
    """Yield where the trainer is told otherwise than `wiring` and a folder that is prepared for it say."""
    values = settings.values
    if (kind := values["speculator_type"]) not in TYPES:
        message = f"expected one of {', '.join(TYPES)}, whose input is {', '.join(wiring.fc)}, got {kind!r}"
        yield _problem("speculator_type", message, "train one of these")
    if "data_path" in settings.said and Path(values["data_path"]).resolve() != folder.resolve():
        message = f"expected {folder.resolve()}, got {Path(values['data_path']).resolve()}"
        yield _problem("data_path", message, "leave it out")
    if "hidden_states_backend" in settings.said and values["hidden_states_backend"] != NAME:
        message = f"expected {NAME}, got {values['hidden_states_backend']!r}"
        yield _problem("hidden_states_backend", message, "leave it out")
    for name in ("hidden_states_path", "strata_source"):
        if name in settings.said:
            message = f"expected it left out: states are read from the dataset, got {values[name]!r}"
            yield _problem(name, message, "leave it out")
    yield from _wrong_ids(settings, wiring)


def _wrong_ids(settings: Settings, wiring: Wiring) -> Iterator[Problem]:
    meant = f"{' '.join(map(str, wiring.boundaries))} ({', '.join(wiring.fc)})"
    repair = (
        f"leave it out, or give --fc with the tensors that are meant; prepared for {', '.join(wiring.fc)}"
    )
    ids = settings.values["target_layer_ids"]
    if "target_layer_ids" in settings.said and tuple(ids) != wiring.boundaries:
        yield _problem("target_layer_ids", f"expected {meant}, got {' '.join(map(str, ids))}", repair)
    if (draft := settings.values.get("from_pretrained")) is not None:
        path = Path(draft) / "config.json"
        content = json.loads(path.read_bytes()) if path.is_file() else {}
        trained = content.get(IDS_IN_CONFIG) or content.get("aux_hidden_state_layer_ids")
        if trained is not None and tuple(trained) != wiring.boundaries:
            message = f"expected a draft whose input is {meant}, got one of {' '.join(map(str, trained))}"
            yield _problem("from_pretrained", message, "give --fc with the tensors that it was trained on")


def _wrong_cut(settings: Settings, prepared: Prepared) -> Iterator[Problem]:
    if "train_data_ratio" in settings.said:
        yield from _wrong_ratio(float(settings.values["train_data_ratio"]), prepared)
    elif prepared.n_train == prepared.n_rows:
        message = "expected rows held out for validation, as the trainer demands, got none"
        yield _problem("train_data_ratio", message, "give --split TRAINING,VALIDATION, or a ratio below 1")


def _wrong_ratio(ratio: float, prepared: Prepared) -> Iterator[Problem]:
    n_rows, n_train = prepared.n_rows, prepared.n_train
    cut = int(n_rows * ratio)
    repair = f"leave it out, or give {train_ratio(n_train, n_rows)}"
    if not (0 < ratio < 1 and 0 < cut < n_rows):
        message = f"expected a ratio that has rows on both sides of its cut, got {ratio}: {cut} of {n_rows}"
        yield _problem("train_data_ratio", message, repair)
    elif prepared.meant.splits and cut != n_train:
        message = f"expected a cut after {n_train} of {n_rows} rows, where {prepared.meant.splits[0]} ends, "
        message += f"got {cut}"
        yield _problem("train_data_ratio", message, repair)
    elif not keeps_conversations(prepared.rows(), cut):
        message = f"expected a cut between two conversations, got one within: after {cut} of {n_rows} rows"
        yield _problem("train_data_ratio", message, repair)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _problem(name: str, message: str, repair: str) -> Problem:
    return Problem(where=_flag(name), kind="trainer_argument", message=message, repair=repair)
