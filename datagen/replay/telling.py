"""An answer as rows: what a table, JSON and the picture all show, in one order and by one name."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from datagen.replay.candidates import Candidate, target_words
from datagen.replay.measuring import Scores
from datagen.replay.replaying import Answer
from datagen.replay.score import DEFINITIONS, LEVEL, MEANINGS, Interval, Tally, bootstrap_over
from datagen.replay.screening import Findings
from datagen.replay.verdict_words import words

Kind = Literal["best", "declared", "served", "other", "floor"]


@dataclass(frozen=True)
class Row:
    """One candidate of one set of samples, and what it scored."""

    candidate: Candidate
    kinds: tuple[Kind, ...]
    scores: Scores
    learned: Interval
    """The accuracy that ranks."""
    behind: Interval | None
    """By how much it is behind what is declared, or where nothing is, behind the best.

    `None` where it is that, or of another target, whose tokens are others.
    """

    @property
    def title(self) -> str:
        """The candidate in words, with what it is."""
        named = [kind for kind in self.kinds if kind in ("declared", "served")]
        return words(self.candidate) + (f" [{', '.join(named)}]" if named else "")


def rows(answer: Answer, findings: Findings) -> tuple[Row, ...]:
    """Return the candidates of one set of samples, the best first, the floors last.

    Against a target other than the best's or the declared one only the best inputs are shown.
    """
    trained, served = answer.declaration.trained, answer.declaration.served
    base = findings.best
    if trained in findings.measured and trained.target == base.target:
        base = trained
    bootstrap = bootstrap_over(findings.n_cases)
    found = []
    for candidate, scores in findings.measured.items():
        inputs, role = candidate
        if candidate != trained and role != findings.best.target and inputs != findings.best.inputs:
            continue
        kinds: list[Kind] = []
        if candidate == findings.best:
            kinds.append("best")
        if candidate == trained:
            kinds.append("declared")
        if inputs == served and role == findings.best.target:
            kinds.append("served")
        if inputs.source != "own":
            kinds.append("floor")
        is_base = candidate == base or role != base.target
        behind = None if is_base else findings.compared(base, candidate)
        learned = bootstrap.accuracy(scores.learned)
        found.append(Row(candidate, tuple(kinds) or ("other",), scores, learned, behind))
    return tuple(
        sorted(
            found,
            key=lambda row: (
                "floor" in row.kinds,
                "best" not in row.kinds,
                row.candidate.target != findings.best.target,
                -row.learned.value,
            ),
        )
    )


def as_data(answer: Answer) -> dict[str, Any]:
    """Return the answer as JSON types."""
    verdict = answer.verdict
    return {
        "ok": verdict.is_well,
        "dataset": answer.reference,
        "draft": answer.draft,
        "verdict": list(verdict.sentences),
        "trained_with": _candidate(verdict.best),
        "too_close_to_call": [_candidate(one) for one in verdict.close],
        "is_as_declared": verdict.is_as_declared,
        "is_as_served": verdict.is_as_served,
        "definitions": dict(MEANINGS),
        "interval": LEVEL,
        "stored": _findings(answer, answer.findings) | {"on_audit_set": answer.on_audit},
        "audit": None if answer.boundaries is None else _findings(answer, answer.boundaries),
        "notes": list(answer.notes),
    }


def _findings(answer: Answer, findings: Findings) -> dict[str, Any]:
    return {
        "conversations": findings.n_cases,
        "wirings_tried": findings.n_tried,
        "rows": [_row(row, findings) for row in rows(answer, findings)],
    }


def _row(row: Row, findings: Findings) -> dict[str, Any]:
    return {
        **_candidate(row.candidate),
        "is": list(row.kinds),
        "accuracy": {name: _tally(row.scores.by[name], findings) for name in DEFINITIONS},
        "teacher_forced_chain": [_tally(one, findings) for one in row.scores.chain],
        "loss": row.scores.loss,
        "behind": None if row.behind is None else _finite(row.behind),
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    inputs, role = candidate
    return {
        "words": words(candidate),
        "fc": list(inputs.fc),
        "moved": inputs.moved,
        "changes": [str(change) for change in inputs.changes],
        "source": inputs.source,
        "target": target_words(role),
    }


def _tally(tally: Tally, findings: Findings) -> dict[str, Any]:
    pairs = int(tally.counted.sum())
    interval = bootstrap_over(findings.n_cases).accuracy(tally)
    return {"pooled": _finite(interval), "mean": tally.mean if pairs else None, "pairs": pairs}


def _finite(interval: Interval) -> dict[str, float | None]:
    """Return an interval as JSON can write it: what is not known is null."""
    return {name: value if abs(value) < float("inf") else None for name, value in interval._asdict().items()}


def lines(answer: Answer) -> Iterator[str]:
    """Yield what stands below the tables: the definitions, the notes, and the verdict."""
    for name, meaning in MEANINGS.items():
        yield f"{name:<12} {meaning}"
    yield "chain k      teacher-forced: pairs whose first k tokens a server would accept; no accept length"
    yield "behind       what is declared (or the best), paired by conversation, allowing for all tried"
    yield f"intervals    {LEVEL:.0%}, over conversations"
    for note in answer.notes:
        yield f"note: {note}"
    yield ""
    yield from answer.verdict.sentences
