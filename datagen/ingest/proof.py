"""The proof of the labels: some rows of a few files against the target's own states of the same token ids.

It is `identify`'s comparison, which knows nothing of the labels: what it finds must be what they say. A state
behind the final norm under the label `final` is found as `final_normed`, and refused.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datagen.adapters.errors import ForeignFileError
from datagen.adapters.foreign_samples import ForeignSample, Slot
from datagen.adapters.imports.format import OpenFiles
from datagen.ingest.facts import Facts, SlotFacts
from datagen.ingest.labels import OPTION, as_said
from datagen.ingest.norms import norms_of
from datagen.ingest.proven_norms import Span, median_norm, span_of
from datagen.replay.identify_answer import Identified, SlotAnswer
from datagen.replay.identify_passes import identify_samples
from datagen.replay.identify_slots import finest, held_dtype
from datagen.replay.identify_sources import Source
from schemas.problem import Problem
from schemas.schema import DType

PROVEN_TOKENS = 256
"""Of each, from its beginning: states are causal, so the first rows of a sample need no others."""
NOTHING = "nothing"
_SHOWN = 4
ENOUGH_TOKENS = 16
"""A sample of fewer is taken only where there are none with more: a token or two tell little of a layer."""


@dataclass(frozen=True)
class SlotProof:
    """What one slot was found to be over the files that were asked: figures are the worst of them."""

    slot: str
    answers: tuple[tuple[str, str | None], ...]
    """Each file, and the tensor that the slot is in it: `None` where it matches nothing."""
    n_rows: int
    median: float | None
    p99: float | None
    nearest: str | None
    margin: float | None
    span: Span | None
    """Of the norms of those files."""

    @property
    def found(self) -> tuple[str, ...]:
        """What it is, the most frequent first, `nothing` last; empty where it matches nothing anywhere."""
        counts = Counter(name for _, name in self.answers if name is not None)
        names = tuple(name for name, _ in counts.most_common())
        return names if counts.total() == self.n_files or not names else (*names, NOTHING)

    @property
    def n_files(self) -> int:
        """How many files were asked."""
        return len(self.answers)

    @property
    def name(self) -> str | None:
        """The one tensor that it is in every file, `None` where it is not one."""
        return self.found[0] if len(self.found) == 1 else None

    def usual(self, label: str) -> str | None:
        """Return what it is in most files; of as many, `label`."""
        counts = Counter(name for _, name in self.answers)
        return max(counts, key=lambda name: (counts[name], name == label))

    def others(self, usual: str | None) -> dict[str, str | None]:
        """Return the files in which it is something else than in most, and what."""
        return {file: name for file, name in self.answers if name != usual}


@dataclass(frozen=True)
class Proof:
    """What was held against what, and what came of it."""

    source: str
    files: tuple[str, ...]
    slots: tuple[SlotProof, ...]
    problems: tuple[Problem, ...]
    """What `identify` found wrong with rows: shifted, another sample's, another model's."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the slots are, `None` where one of them is not one tensor in every file."""
        names = [slot.name for slot in self.slots if slot.name is not None]
        return tuple(names) if len(names) == len(self.slots) else None

    def as_data(self) -> dict[str, object]:
        """Return it as JSON types, for the run's record."""
        return {
            "held_against": self.source,
            "files": list(self.files),
            "slots": [
                {
                    "slot": slot.slot,
                    "is": list(slot.found),
                    "rows": slot.n_rows,
                    "median": slot.median,
                    "p99": slot.p99,
                    "nearest": slot.nearest,
                    "margin": slot.margin,
                }
                for slot in self.slots
            ],
        }


class Beginnings:
    """The first rows of at most so many samples, read: evenly spread over all, in the files' order."""

    def __init__(self, files: OpenFiles, facts: Sequence[Facts], at_most: int) -> None:
        chosen = _spread([one for one in facts if one.n_tokens >= ENOUGH_TOKENS] or facts, at_most)
        self.samples: list[ForeignSample] = []
        self.problems: list[Problem] = []
        for one in chosen:
            try:
                row = files.read(one.listed)
            except ForeignFileError as error:  # it was read a moment ago
                self.problems += error.problems
                continue
            slots = tuple(
                Slot(slot.name, np.ascontiguousarray(slot.rows[:PROVEN_TOKENS])) for slot in row.slots
            )
            ids = row.token_ids[:PROVEN_TOKENS]
            self.samples.append(ForeignSample(one.listed.name, "the labels", ids, slots))

    @property
    def dtype(self) -> DType:
        """The dtype that the states were computed in, by their bits: the target is to compute in it too."""
        return finest({held_dtype(slot.rows) for sample in self.samples for slot in sample.slots})


def to_prove(fresh: Sequence[Facts], alike: Sequence[Facts]) -> Sequence[Facts]:
    """Return the samples, of those `alike`, that a proof is to choose from: those that will be written.

    Where there are none, it is of samples that the dataset has: labels may be wrong for them all the same.
    """
    there = {one.sample_id for one in alike if one.n_tokens >= ENOUGH_TOKENS}
    return [one for one in fresh if one.sample_id in there and one.slots == alike[0].slots] or alike


def _spread(facts: Sequence[Facts], at_most: int) -> list[Facts]:
    if len(facts) <= at_most:
        return list(facts)
    return [facts[int(index)] for index in np.linspace(0, len(facts) - 1, at_most)]


def prove(
    beginnings: Beginnings,
    slots: Sequence[SlotFacts],
    source: Source,
    on_step: Callable[[int, int], None] = lambda _done, _all: None,
) -> Proof:
    """Hold some samples against the target, and return what each slot is."""
    samples = beginnings.samples
    found = identify_samples(iter(samples), source, lambda done: on_step(done, len(samples)))
    by_slot = [[answer for answer in found.slots if answer.slot == slot.name] for slot in slots]
    return Proof(
        source=found.source or source.said,
        files=tuple(sample.file for sample in samples),
        slots=tuple(
            _slot_proof(slot.name, answers, [norms_of(sample.slots[number].rows) for sample in samples])
            for number, (slot, answers) in enumerate(zip(slots, by_slot, strict=True))
        ),
        problems=(*beginnings.problems, *_faults(found)),
    )


def _slot_proof(name: str, answers: Sequence[SlotAnswer], norms: Sequence[NDArray[np.float32]]) -> SlotProof:
    found = [answer.found for answer in answers if answer.found is not None]
    closest = min(found, key=lambda one: one.margin or float("inf"), default=None)
    return SlotProof(
        slot=name,
        answers=tuple((answer.file, answer.found.name if answer.found else None) for answer in answers),
        n_rows=sum(one.n_rows for one in found),
        median=max((one.median for one in found), default=None),
        p99=max((one.p99 for one in found), default=None),
        nearest=closest.rival if closest else None,
        margin=closest.margin if closest else None,
        span=span_of([median_norm(one) for one in norms]),
    )


def _faults(found: Identified) -> Iterator[Problem]:
    """Yield what is wrong with rows; a slot that is nothing at all is told with its label."""
    for problem in found.errors:
        if problem.kind != "nothing" or "rows" in problem.where:
            yield problem


def proof_problems(proof: Proof, labels: Sequence[str], said_by: str) -> Iterator[Problem]:
    """Yield every slot that is not what its label says, with what to write; then what is wrong with rows."""
    repair = _repair(proof, labels)
    for slot, label in zip(proof.slots, labels, strict=True):
        if slot.name == label:
            continue
        usual = slot.usual(label)
        others = slot.others(usual)
        got = _in_files(others, usual, slot.n_files) if others else _named(usual)
        off = ""
        if slot.median is not None and not others:
            off = f" ({slot.median:.2%} off" if slot.median else " (equal"
        far = (
            f", {slot.nearest} is {slot.margin:,.0f} times as far)"
            if off and slot.margin
            else ")" * bool(off)
        )
        message = f"expected {label} {as_said(said_by)}, got {got}{off}{far}"
        yield Problem(where=slot.slot, kind="label", message=message, repair=repair, expected=label, got=got)
    yield from proof.problems


def _repair(proof: Proof, labels: Sequence[str]) -> str:
    """Return what to do: other labels, or the few files taken away that are not as most are."""
    usual = [slot.usual(label) for slot, label in zip(proof.slots, labels, strict=True)]
    if None in usual:
        return "`strata identify` tells more of each file"
    written = f"write {OPTION} {','.join(map(str, usual))}"
    odd = {file for slot, name in zip(proof.slots, usual, strict=True) for file in slot.others(name)}
    if not odd:
        return written
    them = f"take {_some(sorted(odd))} away, or make {'it' if len(odd) == 1 else 'them'} anew"
    return them if usual == list(labels) else f"{written}, and {them}"


def _in_files(others: Mapping[str, str | None], usual: str | None, n_files: int) -> str:
    """Return in words which files hold something else.

    >>> _in_files({"data_4.ckpt": "layer15"}, "layer2", 8)
    'layer15 in data_4.ckpt (layer2 in 7 others)'
    """
    files: dict[str | None, list[str]] = {}
    for file, name in others.items():
        files.setdefault(name, []).append(file)
    told = ", ".join(f"{_named(name)} in {_some(some)}" for name, some in files.items())
    n_usual = n_files - len(others)
    return f"{told} ({_named(usual)} in {n_usual} other{'s' * (n_usual != 1)})"


def _named(name: str | None) -> str:
    return name or f"{NOTHING} of this target"


def _some(files: Sequence[str]) -> str:
    more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
    return ", ".join(files[:_SHOWN]) + more
