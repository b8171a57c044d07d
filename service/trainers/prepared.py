"""A prepared folder: all that speculators' trainer reads but the states, which it then asks for row by row.

    data-*.arrow, ..., token_freq.pt   as an export writes them, to the byte
    strata_rows.jsonl                  which sample each row is, in no file here
    strata_card.json                   the target, the wiring, and the version of the dataset
    strata_prepared.json               which version, wiring and splits it is of, and the size of each file

`service.trainers.preparing` makes it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datagen.store.trainer_rows import ROWS, Listed, read_rows
from schemas.card import Card
from schemas.errors import RecordError
from schemas.problem import Problem
from schemas.record import canonical_json
from service.trainers.errors import TrainerError

IDENTITY = "strata_prepared.json"
FORMAT = "strata.prepared.v1"


class Meant(NamedTuple):
    """What a folder is prepared for: the card says version and wiring; the first split is for training."""

    card: Card
    splits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """A folder that is whole; the first `n_train` of its rows are for training."""

    folder: Path
    meant: Meant
    n_rows: int
    n_train: int
    n_tokens: int
    was_there: bool = True

    def rows(self) -> list[Listed]:
        """Return which sample each row is; raises `TrainerError` where the list is not as it was written."""
        return list(_read_rows(self.folder, self.n_rows))

    @property
    def slots(self) -> tuple[str, ...]:
        """The tensors of a row's states in their order: the draft's input, then the target."""
        wiring = self.meant.card.wiring
        return (*wiring.fc, *([wiring.target.tensor] if wiring.target else []))


def open_prepared(folder: Path, meant: Meant | None = None) -> Prepared:
    """Return a folder that was prepared before; raises `TrainerError` where it is not, or not of `meant`."""
    try:
        data = json.loads((folder / IDENTITY).read_bytes())
        if data["format"] != FORMAT:
            raise ValueError(f"the format {data['format']!r}")
        card = Card.from_json(canonical_json(data["card"]), IDENTITY)
        found = Meant(card, tuple(data["splits"]))
        counts = int(data["rows"]), int(data["train_rows"]), int(data["tokens"])
        sizes = {str(name): int(size) for name, size in data["files"].items()}
    except FileNotFoundError as error:
        raise _no_such(folder, "other files, or none") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecordError) as error:
        raise _no_such(folder, f"{IDENTITY} that cannot be read: {error}") from error
    problems = [*_differences(found, meant)] if meant is not None else []
    problems += _wrong_files(folder, sizes)
    if problems:
        raise TrainerError(f"{folder} is not prepared for this", problems)
    return Prepared(folder, found, *counts)


def read_sample_ids(folder: Path, n_rows: int) -> NDArray[np.uint8]:
    """Return the sample of each row, `[n, 32]` uint8: for millions of rows a tenth of what texts take."""
    ids = b"".join(bytes.fromhex(row.sample_id) for row in _read_rows(folder, n_rows))
    return np.frombuffer(ids, np.uint8).reshape(-1, 32)


def _read_rows(folder: Path, n_rows: int) -> Iterator[Listed]:
    n_read = 0
    try:
        for row in read_rows((folder / ROWS).read_bytes()):
            n_read += 1
            yield row
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _no_such(folder, f"{ROWS} that cannot be read: {error}") from error
    if n_read != n_rows:
        raise _no_such(folder, f"{ROWS} of {n_read} rows in place of {n_rows}")


def _differences(found: Meant, meant: Meant) -> Iterator[Problem]:
    """Yield every difference between what a folder is of and what is asked, each by its own name."""
    before, now = _flat(found.card.model_dump(mode="json")), _flat(meant.card.model_dump(mode="json"))
    before["splits"], now["splits"] = list(found.splits), list(meant.splits)
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            yield Problem(
                where=name,
                kind="difference",
                message=f"expected {now.get(name)!r}, got {before.get(name)!r} there",
                repair="give another --prepared, or ask for what it was prepared for",
            )


def _flat(value: Any, where: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {where: value}
    return {
        name: leaf
        for key, inner in value.items()
        for name, leaf in _flat(inner, f"{where}.{key}" if where else key).items()
    }


def _wrong_files(folder: Path, sizes: dict[str, int]) -> Iterator[Problem]:
    for name, size in sizes.items():
        path = folder / name
        got = path.stat().st_size if path.is_file() else None
        if got != size:
            message = f"expected a file of {size:,} bytes, got {'none' if got is None else f'{got:,}'}"
            yield Problem(where=str(path), kind="size", message=message, repair="remove the folder")


def _no_such(folder: Path, got: str) -> TrainerError:
    message = f"expected a folder that is not there, or was prepared, got {got}"
    repair = "give another --prepared; what lies there is left as it is"
    problem = Problem(where=str(folder), kind="place", message=message, repair=repair)
    return TrainerError("nothing that was prepared", [problem])
