"""Which tensor each slot of somebody's files is: the files are chosen, read, held against the target, and
compared with one another."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from datagen.adapters.errors import ForeignFileError
from datagen.adapters.foreign_files import files_of, holds_states, read_foreign
from datagen.adapters.foreign_samples import ForeignSample
from datagen.replay.errors import ReplayError
from datagen.replay.identify_answer import Identified, SlotAnswer
from datagen.replay.identify_norms import NormLine, norm_line, norms_allow
from datagen.replay.identify_passes import hold_against_others, hold_against_own
from datagen.replay.identify_problems import slot_problems
from datagen.replay.identify_rows import Assignment, sort_out_faulty
from datagen.replay.identify_slots import finest, held_dtype, pieces_of
from datagen.replay.identify_sources import Source
from schemas.problem import Problem
from schemas.schema import DType

OnStep = Callable[[int, int], None]
"""Called with the steps done and those in all."""


def chosen_files(paths: Sequence[Path], at_most: int) -> tuple[list[Path], list[Problem]]:
    """Return the files to look at: those named, and of the files of folders `at_most`, evenly spread."""
    named = [path for path in paths if not path.is_dir()]
    inside, without = files_of([path for path in paths if path.is_dir()])
    repair = "name the folder that they lie in, or the files"
    problems = [problem.model_copy(update={"repair": problem.repair or repair}) for problem in without]
    inside = [file for file in inside if holds_states(file)]
    if len(inside) > at_most:
        step = (len(inside) - 1) / max(1, at_most - 1)
        chosen = [inside[round(index * step)] for index in range(at_most)]
        message = (
            f"{at_most} of {len(inside)} files of folders were looked at: rows of the others are not known"
        )
        problems.append(Problem(where="files", kind="files", message=message, severity="note"))
        inside = chosen
    return list(dict.fromkeys([*named, *inside])), problems


def identify(
    files: Sequence[Path], source: Source | None, on_step: OnStep = lambda _done, _all: None
) -> Identified:
    """Return what the slots of these files are; without a source, what their norms allow."""
    problems: list[Problem] = []
    samples = _read(files, problems)
    if source is None:
        slots = [slot for sample in samples for slot in _by_norms(sample, problems)]
        return Identified(None, None, tuple(slots), tuple(problems))
    opened, known = hold_against_own(samples, source, problems, lambda done: on_step(done, 2 * len(files)))
    hold_against_others(opened, known, source, lambda done: on_step(len(files) + done, 2 * len(files)))
    n_layers = source.target.n_layers
    answers = [slot.answer(n_layers, routes=source.routes) for slot in opened]
    problems += _between(answers)
    return Identified(source.said, source.target, tuple(answers), tuple(problems))


def _read(files: Sequence[Path], problems: list[Problem]) -> Iterator[ForeignSample]:
    """Yield each file as it is read; what cannot be read is a problem, and the next one follows."""
    for file in files:
        try:
            yield read_foreign(file)
        except ForeignFileError as error:
            problems += error.problems


def _by_norms(sample: ForeignSample, problems: list[Problem]) -> Iterator[SlotAnswer]:
    pieces, wrong = pieces_of(sample, None)
    problems += wrong
    before: list[NormLine | None] = []
    for piece in pieces:
        found = Assignment(len(piece.rows))
        sort_out_faulty(found, piece.rows)
        found.put(found.open, "unseen")
        n_tokens = None if sample.token_ids is None else len(sample.token_ids)
        where = f"{sample.file}: {piece.name}"
        told = slot_problems(
            where,
            found,
            None,
            n_tokens,
            nearest=None,
            limit=(0, 0),
            routes=False,
            expected=None,
            layout=sample.layout,
        )
        line = norm_line(piece.rows)
        yield SlotAnswer(
            file=sample.file,
            slot=piece.name,
            layout=sample.layout,
            dtype=piece.rows.dtype.name,
            n_rows=len(piece.rows),
            n_tokens=n_tokens,
            width=piece.rows.shape[1],
            norms=line,
            found=None,
            runs=found.runs(),
            allowed=tuple(norms_allow(piece.rows, sample.token_ids, before)),
            problems=tuple(told),
        )
        before.append(line)


def _between(answers: Sequence[SlotAnswer]) -> Iterator[Problem]:
    """Yield slots that are another tensor in another file, and tensors that stand twice in one."""
    by_slot: dict[tuple[str, str], list[SlotAnswer]] = {}
    for answer in answers:
        if answer.found is not None:
            by_slot.setdefault((answer.layout, answer.slot), []).append(answer)
    for (_, slot), same in by_slot.items():
        counts = Counter(answer.found.name for answer in same if answer.found is not None)
        (usual, n_usual), *others = counts.most_common()
        for name, _ in others:
            files = [answer.file for answer in same if answer.found is not None and answer.found.name == name]
            message = f"expected {usual} as in {n_usual} files, got {name} in {', '.join(files[:4])}"
            yield Problem(where=slot, kind="mixed_up", message=message)
    by_file: dict[str, list[SlotAnswer]] = {}
    for answer in answers:
        by_file.setdefault(answer.file, []).append(answer)
    for file, slots in by_file.items():
        counts = Counter(answer.found.name for answer in slots if answer.found is not None)
        for name, n_slots in counts.items():
            if n_slots > 1:
                message = f"{name} stands in {n_slots} slots"
                yield Problem(where=file, kind="twice", message=message, severity="note")


def dtype_of_files(files: Sequence[Path], problems: Sequence[Problem] = ()) -> DType:
    """Return the dtype that the first readable file's states were computed in, by their bits.

    float32 whose values are all bfloat16's were cast: the target is to compute as it did then. Raises
    `ReplayError` where no file can be read, with these `problems` and each file's own.
    """
    unread = [problem for problem in problems if problem.severity == "error"]
    for sample in _read(files, unread):
        held = {held_dtype(slot.rows) for slot in sample.slots}
        return finest(held)
    raise ReplayError("none of the files can be read", unread)
