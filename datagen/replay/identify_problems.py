"""What is wrong with a slot's rows, by kind: moved, another layer's, another sample's, cut, nobody's."""

from collections.abc import Iterator

import numpy as np

from datagen.replay.identify_answer import Found
from datagen.replay.identify_rows import ALIKE, Assignment, Indices, Kind, Run
from schemas.problem import Problem, Severity

MAX_OFF = 0.02
"""The share of rows that may be farther off than rounding explains: two computations of one state differ."""
MAX_OFF_ROUTED = 0.25
"""With experts a choice between two of them is a matter of rounding."""
MAX_FAR = 0.05
"""The share of them that may be as far off as only a router makes them."""
_SHOWN = 4


def slot_problems(
    where: str,
    rows: Assignment,
    found: Found | None,
    n_tokens: int | None,
    *,
    nearest: tuple[str, float] | None,
    limit: tuple[float, float],
    routes: bool,
    expected: str | None,
    layout: str,
) -> Iterator[Problem]:
    """Yield every problem and note of one slot.

    `nearest` is the nearest tensor at the rows' own places, `expected` what the layout's trainer takes the
    slot for, `limit` the median and 99th percentile that two computations differ by at most.
    """
    n_rows = len(rows.kinds)
    yield from _cut(where, rows, n_tokens)
    if found is None and len(rows.open):
        near = f": the nearest is {nearest[0]}, off by {nearest[1]:.1%} (median)" if nearest else ""
        message = f"expected a tensor of the target, got {n_rows} rows that match nothing{near}"
        yield Problem(
            where=where, kind="nothing", message=message, repair="is it this target's, and of this text?"
        )
    runs = rows.runs()
    for run in _joined(runs, "moved"):
        message = f"expected the state of each row's own token, got {_moved(run)}"
        yield Problem(where=where, kind="shifted", message=f"{_rows(run)}: {message}")
    for run in _joined(runs, "layer"):
        name = f"expected {found.name if found else 'one tensor'}, got {run.name}"
        name += f" {_moved(run).partition(' ')[2]}" if run.offset else ""
        yield Problem(where=where, kind="other_tensor", message=f"{_rows(run)}: {name}")
    for run in _joined(runs, "sample"):
        moved = f", rows {run.first + run.offset} to {run.last + run.offset} of it" if run.offset else ""
        other = f"{run.name} of " if found is not None and run.name != found.name else ""
        message = f"expected the states of this file's tokens, got those of {other}{run.file}{moved}"
        yield Problem(where=where, kind="other_sample", message=f"{_rows(run)}: {message}")
    yield from _faulty(where, rows, found)
    yield from _off(where, rows, found, limit, routes)
    if found is not None and expected is not None and found.name != expected:
        message = f"{layout} takes this slot for {expected}, and it is {found.name}"
        yield Problem(where=where, kind="norm_state", message=message, severity="note")


def unseen_problems(where: str, rows: Assignment) -> Iterator[Problem]:
    """Yield a note of rows that there were no states to hold against."""
    unseen = rows.of("unseen")
    if len(unseen):
        message = f"{listed(unseen)}: not compared, since the audit set has no states of these tokens"
        repair = "give the target itself (--target), which runs over any token ids"
        yield Problem(where=where, kind="unseen", message=message, repair=repair, severity="note")


def _cut(where: str, rows: Assignment, n_tokens: int | None) -> Iterator[Problem]:
    n_rows = len(rows.kinds)
    if n_tokens is None or n_rows == n_tokens:
        return
    message = f"expected a state for each of {n_tokens} tokens, got {n_rows} rows"
    if n_rows < n_tokens:
        moved = rows.of("moved")
        first = int(rows.offsets[moved[0]]) if len(moved) else 0
        last = n_tokens - n_rows - first
        ends = [f"the first {first}" if first > 0 else "", f"the last {last}" if last > 0 else ""]
        message += ": " + " and ".join(filter(None, ends)) + " were cut"
    yield Problem(where=where, kind="cut", message=message)


def _faulty(where: str, rows: Assignment, found: Found | None) -> Iterator[Problem]:
    told: tuple[tuple[Kind, str, str], ...] = (
        ("not finite", "not_finite", "NaN or Inf"),
        ("zeros", "zeros", "zeros"),
        (
            "nothing",
            "nothing",
            "rows that match nothing: no tensor, no other token, no sample that was given",
        ),
    )
    for kind, problem, words in told:
        faulty = rows.of(kind)
        if len(faulty) and not (kind == "nothing" and found is None):
            message = f"{listed(faulty)}: expected {found.name if found else 'states'}, got {words}"
            yield Problem(where=where, kind=problem, message=message)


def _off(
    where: str, rows: Assignment, found: Found | None, limit: tuple[float, float], routes: bool
) -> Iterator[Problem]:
    off = rows.of("off")
    if found is None:
        return
    if len(off):
        n_far = int((rows.errors[off] > ALIKE).sum())
        many = (
            len(off) / found.n_rows > (MAX_OFF_ROUTED if routes else MAX_OFF)
            or n_far / found.n_rows > MAX_FAR
        )
        message = (
            f"{listed(off)}: expected {found.name} but for rounding, got rows off by up to "
            f"{float(rows.errors[off].max()):.1%}; no other tensor, token or sample that was given is nearer"
        )
        severity: Severity = "error" if many and len(off) > 1 else "note"
        yield Problem(where=where, kind="off", message=message, severity=severity)
    if found.median > limit[0]:
        message = (
            f"expected {found.name} within {limit[0]:.2%} (median), as two computations differ, got "
            f"{found.median:.2%}: nearest all the same; of another quantisation or precision, presumably"
        )
        yield Problem(where=where, kind="inexact", message=message, severity="note")


def _joined(runs: tuple[Run, ...], kind: Kind) -> list[Run]:
    """Return the runs of a kind, those of one explanation that only right rows part as one."""
    joined: list[Run] = []
    for run in runs:
        before = joined[-1] if joined else None
        if run.kind != kind:
            continue
        same = before and (before.name, before.file, before.offset) == (run.name, run.file, run.offset)
        if before and same and run.first - before.last <= _SHOWN:
            joined[-1] = Run(before.first, run.last, kind, run.name, run.file, run.offset)
        else:
            joined.append(run)
    return joined


def _rows(run: Run) -> str:
    return f"row {run.first}" if run.first == run.last else f"rows {run.first} to {run.last}"


def _moved(run: Run) -> str:
    n = abs(run.offset)
    side = "after" if run.offset > 0 else "before"
    return f"that of {'the token' if n == 1 else f'{n} tokens'} {side} (shifted by {run.offset:+d})"


def listed(rows: Indices) -> str:
    """Return rows as ranges, the first few of many.

    >>> listed(np.array([3, 4, 5, 9]))
    'rows 3 to 5, 9'
    """
    breaks = np.flatnonzero(np.diff(rows) > 1)
    firsts, lasts = rows[[0, *(breaks + 1)]].tolist(), rows[[*breaks, len(rows) - 1]].tolist()
    ranges = [f"{a}" if a == b else f"{a} to {b}" for a, b in zip(firsts, lasts, strict=True)]
    more = f" and {len(ranges) - _SHOWN} more ranges" if len(ranges) > _SHOWN else ""
    return ("row " if len(rows) == 1 else "rows ") + ", ".join(ranges[:_SHOWN]) + more
