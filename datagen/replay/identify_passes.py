"""The two passes of an identification, over samples however they were read.

The first holds each sample against the states of its own token ids; the second, where rows are still open,
against those of every other sample and of the audit set. One sample's states are in memory at a time, and of
the rows those of slots that are still open.
"""

from collections.abc import Callable, Iterator, Sequence

from datagen.adapters.foreign_samples import ForeignSample
from datagen.replay.identify_answer import Identified
from datagen.replay.identify_slots import OpenSlot, pieces_of
from datagen.replay.identify_sources import KnownSample, Source, beginnings
from schemas.problem import Problem


def identify_samples(
    samples: Iterator[ForeignSample], source: Source, on_step: Callable[[int], None] = lambda _done: None
) -> Identified:
    """Return what the slots of samples are that were read already, as a dataset's own."""
    problems: list[Problem] = []
    opened, known = hold_against_own(samples, source, problems, on_step)
    hold_against_others(opened, known, source, lambda _done: None)
    answers = [slot.answer(source.target.n_layers, routes=source.routes) for slot in opened]
    return Identified(source.said, source.target, tuple(answers), tuple(problems))


def hold_against_own(
    samples: Iterator[ForeignSample], source: Source, problems: list[Problem], on_step: Callable[[int], None]
) -> tuple[list[OpenSlot], list[KnownSample]]:
    """Hold each file against its own ids' states; what is settled keeps its answer and drops its rows."""
    opened: list[OpenSlot] = []
    known: list[KnownSample] = []
    for done, sample in enumerate(samples, start=1):
        pieces, wrong = pieces_of(sample, source.target.hidden_size)
        problems += wrong
        slots = [
            OpenSlot.of(sample, piece, source.dtype, last=index == len(pieces) - 1)
            for index, piece in enumerate(pieces)
        ]
        if sample.token_ids is not None:
            states = source.states(sample.token_ids)
            if isinstance(states, Problem):
                problems.append(states.model_copy(update={"where": f"{sample.file}: {states.where}"}))
                continue
            known.append(KnownSample(sample.file, sample.token_ids))
            for slot in slots:
                slot.hold_against_own(states)
        else:
            message = (
                "the file has no token ids: its rows are looked for in the other samples that were given"
            )
            problems.append(Problem(where=sample.file, kind="token_ids", message=message, severity="note"))
        for slot in slots:
            slot.settle_in_place()
            slot.let_go()
        opened += slots
        on_step(done)
    return opened, known


def hold_against_others(
    opened: Sequence[OpenSlot], known: Sequence[KnownSample], source: Source, on_step: Callable[[int], None]
) -> None:
    for done, sample in enumerate(beginnings([*known, *source.samples()]), start=1):
        pending = [slot for slot in opened if slot.is_open and slot.file != sample.label]
        if pending:
            states = source.states(sample.token_ids)
            if not isinstance(states, Problem):
                for slot in pending:
                    slot.hold_against_other(sample.label, states)
        on_step(min(done, len(known)))
