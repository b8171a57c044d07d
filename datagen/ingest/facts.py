"""A sample as its file has it, its states left out: what a look at every file keeps of each.

Of a file only its head, ids and mask are read for this, where its form allows that.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datagen.adapters.errors import refused
from datagen.adapters.imports.format import ForeignRow, Listed
from datagen.adapters.safe_loading import MOST_PACKED
from datagen.ingest.mask_notes import Beginnings, begins_of
from datagen.store.dtypes import dtype_name
from schemas.problem import Problem
from schemas.records import QuarantineReason
from schemas.sample import sample_id
from schemas.schema import DTYPES
from schemas.target import Target

_WIDENED = 4
"""How many times larger than its file a sample is at most: of 8 bits it may become one of 32."""


class Stamp(NamedTuple):
    """What a file's system says of it: where that is another one, its bytes may be others too."""

    size_bytes: int
    changed_at_ns: int


class SlotFacts(NamedTuple):
    """One slot: where it lies, its dtype, and its shape without the rows."""

    name: str
    dtype: str
    width: int


class Facts(NamedTuple):
    """One sample, T tokens; `slots` have T rows each, and the mask is one of zeros and ones."""

    listed: Listed
    sample_id: str
    conversation_id: str | None
    n_tokens: int
    n_trained: int
    mask_digest: bytes
    begins: Beginnings
    """The tokens before its trained spans."""
    slots: tuple[SlotFacts, ...]
    stamp: Stamp
    """Of the file before it was looked at, or after it was read."""
    last: str | None = None
    """What the file's own flag says of the last slot."""


class Refusal(NamedTuple):
    """A sample that cannot be taken, and why."""

    listed: Listed
    reason: QuarantineReason
    problems: tuple[Problem, ...]
    sample_id: str | None = None
    conversation_id: str | None = None


def stamp_of(file: Path) -> Stamp:
    """Return a file's stamp; raises `ForeignFileError` where it is gone."""
    try:
        found = file.stat()
    except OSError as error:
        raise refused(file, "file", "expected a file, got none of this name") from error
    return Stamp(found.st_size, found.st_mtime_ns)


def facts_of(
    listed: Listed, row: ForeignRow, stamp: Stamp, target: Target, *, all_trained: bool
) -> Facts | Refusal:
    """Return what there is, or every reason for which it is not a sample of the target."""
    ids = row.token_ids
    n_tokens = len(ids)
    problems = [*_size_problems(listed, row, stamp.size_bytes)]
    reason: QuarantineReason = "wrong_content"
    if problems:
        return Refusal(listed, reason, tuple(problems), None, row.conversation_id)
    problems += _id_problems(ids, target.vocab_size)
    if problems:
        reason = "empty" if not n_tokens else "token_out_of_vocabulary"
        return Refusal(listed, reason, tuple(problems), None, row.conversation_id)
    known = sample_id(ids.tolist())
    problems += mask_problems(row.loss_mask, n_tokens, all_trained=all_trained)
    problems += _slot_problems(row, target.hidden_size)
    if problems:
        return Refusal(listed, reason, tuple(problems), known, row.conversation_id)
    mask = whole_mask(row.loss_mask, n_tokens)
    slots = tuple(SlotFacts(slot.name, dtype_name(slot.rows.dtype), slot.rows.shape[1]) for slot in row.slots)
    trained = int(np.count_nonzero(mask))
    begins = frozenset() if row.loss_mask is None else begins_of(ids, mask)
    digest = digest_of(mask)
    return Facts(
        listed, known, row.conversation_id, n_tokens, trained, digest, begins, slots, stamp, row.last
    )


def digest_of(mask: NDArray[np.uint8]) -> bytes:
    """Return what two masks that are equal share."""
    return hashlib.sha256(mask.tobytes()).digest()


def whole_mask(mask: NDArray[np.generic] | None, n_tokens: int) -> NDArray[np.uint8]:
    """Return a mask that was found to be right as it is stored, `[T]` uint8; ones where there is none."""
    return np.ones(n_tokens, np.uint8) if mask is None else (np.asarray(mask) != 0).astype(np.uint8)


def mask_problems(mask: NDArray[np.generic] | None, n_tokens: int, *, all_trained: bool) -> Iterator[Problem]:
    """Yield what is wrong with a loss mask: there is none, its length, or other values than 0 and 1."""
    if mask is None:
        if not all_trained:
            message = "expected a loss mask, got none"
            repair = "give --masks ones to train on every token"
            yield Problem(where="loss_mask", kind="missing", message=message, repair=repair)
        return
    if mask.shape != (n_tokens,):
        message = f"expected one value for each of {n_tokens} tokens, got {list(mask.shape)}"
        repair = (
            "where many files are so, the masks of the others may be other samples', too: make them again"
        )
        yield Problem(where="loss_mask", kind="length", message=message, repair=repair)
        return
    values = np.unique(mask)
    if others := [value.item() for value in values if value not in (0, 1)]:
        shown = ", ".join(map(str, others[:4]))
        message = f"expected 0 and 1, got {shown}{', ...' if len(others) > 4 else ''}"
        yield Problem(where="loss_mask", kind="values", message=message)


def _size_problems(listed: Listed, row: ForeignRow, size_bytes: int) -> Iterator[Problem]:
    """Yield a problem of tensors that say to be larger than their file: a value may be said to repeat."""
    said = row.token_ids.nbytes + sum(slot.rows.nbytes for slot in row.slots)
    most = size_bytes * (MOST_PACKED if listed.path.name.endswith(".gz") else _WIDENED)
    if said > most:
        message = f"expected at most {most:,} bytes of tensors in a file of its size, got {said:,}"
        yield Problem(where="file", kind="size", message=message, repair="save its tensors as they are used")


def _id_problems(ids: NDArray[np.int64], vocab_size: int) -> Iterator[Problem]:
    if not len(ids):
        yield Problem(where="input_ids", kind="empty", message="expected at least one token, got none")
        return
    lowest, highest = int(ids.min()), int(ids.max())
    if lowest < 0 or highest >= vocab_size:
        got = lowest if lowest < 0 else highest
        message = f"expected ids from 0 to {vocab_size - 1}, the target's vocabulary, got {got}"
        yield Problem(where="input_ids", kind="vocabulary", message=message)


def _slot_problems(row: ForeignRow, width: int) -> Iterator[Problem]:
    for slot in row.slots:
        if slot.rows.ndim != 2 or len(slot.rows) != len(row.token_ids):
            message = f"expected a state for each of {len(row.token_ids)} tokens, got {len(slot.rows)} rows"
            yield Problem(where=slot.name, kind="rows", message=message)
        elif slot.rows.shape[1] != width:
            message = f"expected the target's width {width}, got {slot.rows.shape[1]}"
            repair = "is it this target's? a slot may be several times as wide, never another width"
            yield Problem(where=slot.name, kind="width", message=message, repair=repair)
        if (got := dtype_name(slot.rows.dtype)) not in DTYPES:
            message = f"expected {', '.join(DTYPES)}, got {got}"
            yield Problem(where=slot.name, kind="dtype", message=message)


def usual(facts: Sequence[Facts]) -> tuple[SlotFacts, ...]:
    """Return the slots that most samples have, the first of those where two are as many."""
    counts = Counter(one.slots for one in facts)
    return max(counts, key=counts.__getitem__)


def are_alike(slots: Sequence[SlotFacts], others: Sequence[SlotFacts]) -> bool:
    """Say whether two samples have the same slots, by dtype and width: of one token, names may differ."""
    return [slot[1:] for slot in slots] == [other[1:] for other in others]
