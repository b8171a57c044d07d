"""A prepared folder is made: whole or not at all, and of several processes that need it, by one.

The others wait for it; a launcher of many ranks need not know which of them is the first.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from datagen.adapters.exports.speculators_prepared import PreparedSample, write_prepared
from datagen.store.failures import store_error
from datagen.store.synced import sync, sync_all
from datagen.store.trainer_rows import ROWS, Listed, in_rows, rows_text
from schemas.card import CARD_FILE
from schemas.problem import Problem
from schemas.record import canonical_json
from service.trainers.errors import TrainerError
from service.trainers.held import Held
from service.trainers.prepared import FORMAT, IDENTITY, Meant, Prepared, open_prepared


def prepare(folder: Path, held: Held, meant: Meant) -> Prepared:
    """Return the prepared folder of a version, made here when it is not there yet.

    Raises `TrainerError` with every difference where another is, or there are no samples, and what `held`
    raises.
    """
    folder = Path(os.path.abspath(folder))
    with _alone(folder):
        if folder.exists() and any(folder.iterdir() if folder.is_dir() else [folder]):
            return open_prepared(folder, meant)
        partial = folder.parent / f".{folder.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir()
            made = _write(partial, held, meant)
            os.replace(partial, folder)
            sync(folder.parent)
        except OSError as error:
            raise store_error(error, "write", str(folder)) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return Prepared(folder, meant, *made, was_there=False)


def _write(folder: Path, held: Held, meant: Meant) -> tuple[int, int, int]:
    """Write all files, the identity last, and return the rows, those for training, and all tokens."""
    rows, n_train = in_rows(held.groups(meant.splits))
    if not rows:
        message = f"expected samples in {' and '.join(meant.splits) or 'the version'}, got none"
        raise TrainerError("nothing to train on", [Problem(where="split", kind="empty", message=message)])
    files = write_prepared(folder, _samples(held, rows))
    (folder / ROWS).write_bytes(rows_text(rows))
    (folder / CARD_FILE).write_bytes(meant.card.to_json())
    files += [ROWS, CARD_FILE]
    counts = len(rows), n_train, sum(row.n_tokens for row in rows)
    identity = {
        "format": FORMAT,
        "card": meant.card.model_dump(mode="json"),
        "splits": list(meant.splits),
        **dict(zip(("rows", "train_rows", "tokens"), counts, strict=True)),
        "files": {name: (folder / name).stat().st_size for name in sorted(files)},
    }
    (folder / IDENTITY).write_bytes(canonical_json(identity))
    sync_all([*(folder / name for name in (*files, IDENTITY)), folder])
    return counts


def _samples(held: Held, rows: Sequence[Listed]) -> Iterator[PreparedSample]:
    tokens = held.tokens([row.sample_id for row in rows])
    for row, (input_ids, loss_mask) in zip(rows, tokens, strict=True):
        yield PreparedSample(row.sample_id, input_ids, loss_mask)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time look whether the folder is there; the kernel drops the lock of a dead one."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = open(folder.parent / f".{folder.name}.lock", "w")  # noqa: SIM115 - closed below
    except OSError as error:
        raise store_error(error, "write", str(folder)) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
