"""What a draft is worth under each wiring, by `strata replay` on held-out conversations."""

import sys
from dataclasses import dataclass
from pathlib import Path

from datagen.progress import Passes
from datagen.replay.candidates import TRUE_TARGET, Candidate
from datagen.replay.declaring import Said
from datagen.replay.picture import write_picture
from datagen.replay.replaying import Answer, Replay, replay
from datagen.replay.score import Bootstrap, Interval
from deploy.demo.model import MODEL

SERVER = "vllm"


@dataclass(frozen=True)
class Replayed:
    """Accuracies at step 1 over held-out conversations, and the verdict in words."""

    as_trained: Interval
    """Its own inputs, judged by what its own trainer judged it by."""
    truly: Interval
    """Its own inputs, judged by the target's own next token."""
    served: Interval
    """What the server feeds, judged by the target's own next token."""
    verdict: tuple[str, ...]
    is_well: bool


@dataclass(frozen=True)
class Extent:
    """How much is replayed: conversations, and whether under every plausible wiring or the declared alone."""

    n_samples: int
    try_all: bool


def replay_draft(held_out: str, draft: Path, wiring: Path | None, picture: Path, extent: Extent) -> Replayed:
    """Replay a draft as trained and as served; `wiring` says what it took, unless a card does."""
    asked = Replay(
        dataset=held_out,
        draft=draft,
        target=str(MODEL),
        said=Said(trainer_wiring=wiring, server=SERVER),
        n_samples=extent.n_samples,
        try_all=extent.try_all,
    )
    with Passes(sys.stderr) as watch:
        answer = replay(asked, watch)
    write_picture(picture, answer)
    trained, served = answer.declaration.trained, answer.declaration.served
    if trained is None or served is None:
        raise ValueError(f"expected a draft whose trainer and server are known, got {answer.declaration}")
    return Replayed(
        as_trained=_accuracy(answer, trained),
        truly=_accuracy(answer, Candidate(trained.inputs, TRUE_TARGET)),
        served=_accuracy(answer, Candidate(served, TRUE_TARGET)),
        verdict=answer.verdict.sentences,
        is_well=answer.verdict.is_well,
    )


def _accuracy(answer: Answer, candidate: Candidate) -> Interval:
    findings = answer.findings
    return Bootstrap(findings.n_cases).accuracy(findings.measured[candidate].learned)
