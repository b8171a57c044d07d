"""The maps between a draft's ids and the target's: `d2t` (offsets by draft id) and `t2d` (marks)."""

import torch
from torch import Tensor

from datagen.replay.sizes import Sizes
from schemas.problem import Problem

_INTEGERS = (torch.int64, torch.int32)


def map_problems(d2t: Tensor | None, t2d: Tensor | None, sizes: Sizes) -> list[Problem]:
    """Return what keeps the maps from meaning one target id a draft id, and the same in both."""
    if d2t is None:
        if sizes.draft_vocab_size == sizes.vocab_size:
            return []
        return [
            _wrong(
                "d2t",
                f"expected d2t, since the draft knows {sizes.draft_vocab_size} of the target's "
                f"{sizes.vocab_size} tokens, got none",
                "export the checkpoint with its d2t (int64, target id minus draft id)",
            )
        ]
    problems = []
    if d2t.shape != (sizes.draft_vocab_size,) or d2t.dtype not in _INTEGERS:
        problems.append(_wrong("d2t", f"expected {sizes.draft_vocab_size} integers, got {_shown(d2t)}"))
    if t2d is not None and (t2d.shape != (sizes.vocab_size,) or not _marks(t2d)):
        problems.append(_wrong("t2d", f"expected {sizes.vocab_size} marks (bool), got {_shown(t2d)}"))
    return problems or _values(d2t, t2d, sizes)


def target_ids(d2t: Tensor | None, n_draft: int) -> Tensor:
    """Return the target id of each draft id, int64 `[D]`."""
    own = torch.arange(n_draft)
    return own if d2t is None else own + d2t.to(torch.int64)


def _values(d2t: Tensor, t2d: Tensor | None, sizes: Sizes) -> list[Problem]:
    ids = target_ids(d2t, sizes.draft_vocab_size)
    outside = int(((ids < 0) | (ids >= sizes.vocab_size)).sum())
    distinct = len(torch.unique(ids))
    marked = None if t2d is None else t2d.nonzero()[:, 0]
    absolute = torch.unique(d2t.to(torch.int64))
    if len(absolute) == len(d2t) and (outside or marked is not None) and _is_ids(absolute, marked, sizes):
        return [
            _wrong(
                "d2t",
                "expected offsets (target id minus draft id), got the target ids themselves",
                "write d2t - arange(len(d2t))",
            )
        ]
    problems = []
    if outside:
        problems.append(
            _wrong("d2t", f"expected target ids below {sizes.vocab_size}, got {outside} outside of that")
        )
    if distinct != len(ids):
        problems.append(
            _wrong("d2t", f"expected another target id for each draft id, got {distinct} for {len(ids)}")
        )
    if marked is not None and not torch.equal(marked, ids.sort().values):
        problems.append(
            _wrong(
                "t2d",
                f"expected the {len(ids)} target ids of d2t to be marked and no other, got {len(marked)} "
                f"marks, {int(torch.isin(marked, ids).sum())} of them at ids of d2t",
                "take both maps from the training run: one of them was never loaded, or is another run's",
            )
        )
    return problems


def _is_ids(absolute: Tensor, marked: Tensor | None, sizes: Sizes) -> bool:
    if int(absolute.min()) < 0 or int(absolute.max()) >= sizes.vocab_size:
        return False
    return marked is None or torch.equal(marked, absolute)


def _marks(t2d: Tensor) -> bool:
    return t2d.dtype == torch.bool or (not t2d.is_floating_point() and bool(((t2d == 0) | (t2d == 1)).all()))


def _shown(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _wrong(where: str, message: str, repair: str | None = None) -> Problem:
    return Problem(where=where, kind="vocabulary", message=message, repair=repair)
