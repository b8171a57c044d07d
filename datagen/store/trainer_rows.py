"""The rows that a trainer counts samples by, the same for files and for live reading.

Their order is a function of the conversations alone, with each split, or each conversation where there is
none, in one piece, so that a trainer that cuts off its last rows for validation does not validate on what it
trained on.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from datagen.store.errors import RefusedError
from schemas.problem import Problem
from schemas.record import canonical_json

ROWS = "strata_rows.jsonl"
"""Which sample each row is, a JSON object a line, beside what a trainer reads."""
TRAIN_SHARE = 0.9
"""Of the rows, for training, where no splits are named: what trainers cut at by default."""


class Listed(Protocol):
    """What a row must know of its sample."""

    @property
    def sample_id(self) -> str: ...

    @property
    def conversation_id(self) -> str: ...

    @property
    def n_tokens(self) -> int: ...


ListedT = TypeVar("ListedT", bound=Listed)


def in_rows(groups: Sequence[Iterable[ListedT]]) -> tuple[list[ListedT], int]:
    """Return samples in the order of rows, and how many of the first are for training.

    The samples of the first group come first and are for training, those of the others follow. Of one group
    alone conversations follow one another by a hash of their ids, and the cut falls between two of them, at
    or after `TRAIN_SHARE`. Either is empty where there are no samples. Raises `RefusedError` where a
    conversation is in two groups: what is held out would be trained on.
    """
    ordered = [sorted(group, key=_place) for group in groups]
    rows = [sample for group in ordered for sample in group]
    if len(ordered) == 1:
        return rows, _cut(rows)
    _refuse_shared(ordered)
    return rows, next((len(group) for group in ordered if group), 0)


def _refuse_shared(groups: Sequence[Sequence[Listed]]) -> None:
    conversations = [{sample.conversation_id for sample in group} for group in groups]
    n_shared = sum(map(len, conversations)) - len(set[str]().union(*conversations))
    if n_shared:
        message = f"expected splits that share no conversation, got {n_shared:,} that are in more than one"
        repair = "name splits of one rule, each once"
        raise RefusedError(
            "what is held out would be trained on",
            [Problem(where="split", kind="overlap", message=message, repair=repair)],
        )


def keeps_conversations(rows: Sequence[Listed], n_train: int) -> bool:
    """Say whether a cut after `n_train` rows leaves every conversation in one piece."""
    if not 0 < n_train < len(rows):
        return True
    return rows[n_train].conversation_id != rows[n_train - 1].conversation_id


def train_ratio(n_train: int, n_rows: int) -> float:
    """Return the ratio from which a trainer's `int(rows * ratio)` makes `n_train` rows.

    >>> [int(436 * train_ratio(n, 436)) for n in (1, 391, 435)]
    [1, 391, 435]
    """
    return 1.0 if n_train == n_rows else round((n_train + 0.5) / n_rows, 9)


def rows_text(rows: Iterable[Listed], files: Sequence[str] | None = None) -> bytes:
    """Return which sample each row is, as `ROWS` says it, and where there are files, which one it lies in."""
    return b"".join(
        canonical_json(
            {
                "row": number,
                "sample_id": row.sample_id,
                "conversation_id": row.conversation_id,
                "tokens": row.n_tokens,
                **({} if files is None else {"file": files[number]}),
            }
        )
        + b"\n"
        for number, row in enumerate(rows)
    )


class RowSample(NamedTuple):
    """One line of `ROWS`; a `Listed`. `file` is its path in the folder, where it lies in one."""

    sample_id: str
    conversation_id: str
    n_tokens: int
    file: str | None = None


def read_rows(text: bytes) -> Iterator[RowSample]:
    """Yield the rows of `ROWS` in their order; raises `ValueError` for what is none, or out of its place."""
    for number, line in enumerate(text.splitlines()):
        row = json.loads(line)
        if row["row"] != number:
            raise ValueError(f"expected row {number}, got {row['row']}")
        yield RowSample(row["sample_id"], row["conversation_id"], row["tokens"], row.get("file"))


def _place(sample: Listed) -> tuple[bytes, str]:
    text = sample.conversation_id.encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).digest(), sample.sample_id


def _cut(located: Sequence[Listed]) -> int:
    """Return the first place at or after `TRAIN_SHARE` where a conversation begins, or the last before it."""
    begins = [
        number
        for number in range(1, len(located))
        if located[number].conversation_id != located[number - 1].conversation_id
    ]
    wanted = int(len(located) * TRAIN_SHARE)
    return next((number for number in begins if number >= wanted), begins[-1] if begins else len(located))
