"""A look at every file before anything is written: which samples there are, and which cannot be taken.

What is found here is what a dry run tells, NaN left out: for that every byte would have to be read.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from datagen.adapters.errors import ForeignFileError
from datagen.adapters.imports.format import Listed, OpenFiles
from datagen.ingest.facts import (
    Facts,
    Refusal,
    SlotFacts,
    are_alike,
    digest_of,
    facts_of,
    stamp_of,
    whole_mask,
)
from datagen.store.snapshot import Snapshot
from schemas.problem import Problem
from schemas.records import QuarantineReason
from schemas.target import Target

UNREADABLE = frozenset({"file", "pickle", "damaged", "layout", "prepared"})
"""Kinds of problems for which a file is no record at all; others are of a record that is wrong."""
_AHEAD = 64


@dataclass(frozen=True)
class Looked:
    """`fresh` are to be written, in the files' order; `there` are in the dataset, `again` came twice."""

    fresh: tuple[Facts, ...]
    refused: tuple[Refusal, ...]
    n_there: int = 0
    n_again: int = 0

    @property
    def n_tokens(self) -> int:
        """Tokens of what is to be written."""
        return sum(facts.n_tokens for facts in self.fresh)


def look(
    files: OpenFiles,
    target: Target,
    workers: int,
    *,
    all_trained: bool,
    on_step: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[Facts | Refusal]:
    """Return what is known of each sample, in the files' own order."""

    def one(listed: Listed) -> Facts | Refusal:
        return looked_at(files, listed, target, all_trained=all_trained)

    found = []
    with ThreadPoolExecutor(workers, "look") as pool:
        for seen in _in_order(pool, one, files.samples):
            found.append(seen)
            on_step(len(found), len(files.samples))
    return found


def _in_order(
    pool: ThreadPoolExecutor, act: Callable[[Listed], Facts | Refusal], items: Sequence[Listed]
) -> Iterator[Facts | Refusal]:
    """Yield results in order, a bounded number ahead: a folder may have a million files."""
    waiting: deque[Future[Facts | Refusal]] = deque()
    rest = iter(items)
    try:
        waiting.extend(pool.submit(act, item) for item in islice(rest, _AHEAD))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(act, item) for item in islice(rest, 1))
    finally:
        for future in waiting:
            future.cancel()


def looked_at(files: OpenFiles, listed: Listed, target: Target, *, all_trained: bool) -> Facts | Refusal:
    """Return what is known of one sample."""
    try:
        stamp = stamp_of(listed.path)
        row = files.read(listed, states=False)
    except ForeignFileError as error:
        return refusal_of(listed, error)
    return facts_of(listed, row, stamp, target, all_trained=all_trained)


def refusal_of(listed: Listed, error: ForeignFileError) -> Refusal:
    """Return the refusal of a file that cannot be read."""
    unreadable = any(problem.kind in UNREADABLE for problem in error.problems)
    reason: QuarantineReason = "unreadable_record" if unreadable else "wrong_content"
    return Refusal(listed, reason, error.problems)


def sorted_out(
    seen: Sequence[Facts | Refusal],
    slots: tuple[SlotFacts, ...],
    snapshot: Snapshot | None,
    problem_of: Callable[[Facts], Problem | None] = lambda _facts: None,
) -> Looked:
    """Return what of all that was seen is to be written: samples of the usual slots, each once.

    What `problem_of` says is wrong with one refuses it.

    One with the ids of another and another mask is refused, be that one in the files or in the dataset.
    """
    refused = [one for one in seen if isinstance(one, Refusal)]
    fresh: dict[str, Facts] = {}
    n_there = n_again = 0
    for facts in (one for one in seen if isinstance(one, Facts)):
        before = fresh.get(facts.sample_id)
        if not are_alike(facts.slots, slots):
            refused.append(_other_slots(facts, slots))
        elif (problem := problem_of(facts)) is not None:
            refused.append(_refused(facts, problem))
        elif before is not None:
            if before.mask_digest == facts.mask_digest:
                n_again += 1
            else:
                refused.append(_other_mask(facts, before.listed.name, before.n_trained))
        elif snapshot is None or facts.sample_id not in snapshot:
            fresh[facts.sample_id] = facts
        elif (other := _mask_there(snapshot, facts)) is not None:
            refused.append(_other_mask(facts, "the dataset", other))
        else:
            n_there += 1
    return Looked(tuple(fresh.values()), tuple(refused), n_there, n_again)


def _mask_there(snapshot: Snapshot, facts: Facts) -> int | None:
    """Return the trained tokens of the stored sample of these ids where its mask is another, else `None`."""
    location = snapshot.location(facts.sample_id)
    if location.n_trained != facts.n_trained:
        return location.n_trained
    stored = snapshot.part(location).read_tokens(location.row_start, location.n_tokens, "loss_mask")
    same = facts.mask_digest == digest_of(whole_mask(stored, location.n_tokens))
    return None if same else location.n_trained


def _other_slots(facts: Facts, slots: tuple[SlotFacts, ...]) -> Refusal:
    def told(some: tuple[SlotFacts, ...]) -> str:
        kinds: Mapping[str, None] = dict.fromkeys(f"{slot.dtype} [T, {slot.width}]" for slot in some)
        return f"{len(some)} slots of {' and '.join(kinds)}"

    message = f"expected {told(slots)} as most files have, got {told(facts.slots)}"
    return _refused(facts, Problem(where="slots", kind="slots", message=message))


def _refused(facts: Facts, problem: Problem) -> Refusal:
    return Refusal(facts.listed, "wrong_content", (problem,), facts.sample_id, facts.conversation_id)


def _other_mask(facts: Facts, other: str, n_trained: int) -> Refusal:
    message = (
        f"expected the mask of {other}, which has the same token ids and {n_trained} trained, got another "
        f"with {facts.n_trained}"
    )
    problem = Problem(where="loss_mask", kind="mask_conflict", message=message)
    return Refusal(facts.listed, "mask_conflict", (problem,), facts.sample_id, facts.conversation_id)
