"""One run of the recorded trainer, in a process of its own, and what it wrote down."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.demo.incident.training import DRAFT_VOCABULARY, TOKENS_A_STEP
from deploy.demo.model import MODEL
from deploy.demo.registry import DemoError

SEED = 0
STEPS_DEEP = 3
Metrics = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """One way to the same states: `kind` is `files` or `live`, with the words that say where they lie."""

    name: str
    kind: str
    words: tuple[str, ...]
    trainer_words: tuple[str, ...] = ()
    workers: int = 0


@dataclass(frozen=True)
class Ran:
    """What a run logged, in its order, and how long it took."""

    metrics: tuple[Metrics, ...]
    seconds: float

    @property
    def losses(self) -> list[float]:
        """The loss of each step."""
        return [float(entry["train"]["loss"]) for entry in self.metrics if "train" in entry]


def train(way: Way, place: Path, steps: int, environment: Path) -> Ran:
    """Train a draft anew in `place`; raises `DemoError` with the end of its log when it fails."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    metrics, log = place / "metrics.jsonl", place / "log"
    own = [*way.trainer_words, *course(place, steps, way.workers)]
    words = [*way.words, *(["--"] if way.kind == "live" else []), *own]
    command = [sys.executable, "-m", "deploy.demo.live.recorded_trainer", str(metrics), way.kind, *words]
    given = os.environ | {"PYTHONPATH": str(environment), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    begun = time.monotonic()
    with log.open("w", encoding="utf-8") as out:
        ran = subprocess.run(
            command, env=given, stdout=out, stderr=out, stdin=subprocess.DEVNULL, check=False
        )
    if ran.returncode:
        tail = log.read_text(encoding="utf-8", errors="replace")[-3000:]
        raise DemoError(f"{way.name}: the trainer ended with exit status {ran.returncode}\n{tail}")
    lines = metrics.read_text(encoding="utf-8").splitlines()
    return Ran(tuple(json.loads(line) for line in lines), time.monotonic() - begun)


def course(place: Path, steps: int, workers: int) -> list[str]:
    """Return the trainer's own words, the same for every way but for the number of workers."""
    settings = {
        "speculator-type": "eagle3",
        "verifier-name-or-path": MODEL.resolve(),
        "draft-vocab-size": DRAFT_VOCABULARY,
        "total-seq-len": TOKENS_A_STEP,
        "epochs": 1,
        "max-steps": steps,
        "lr": 1e-3,
        "ttt-steps": STEPS_DEEP,
        "num-workers": workers,
        "full-attention-indices": 0,
        "loss-implementation": "eager",
        "draft-attn-impl": "eager",
        "seed": SEED,
        "log-freq": 1,
        "save-path": place / "draft",
    }
    return [piece for name, value in settings.items() for piece in (f"--{name}", str(value))]


def differences(runs: Sequence[Ran]) -> list[str]:
    """Return where runs logged other numbers than the first; nothing is close here, all is equal.

    >>> a = Ran(({"train": {"loss": 0.1}, "step": 0},), 0.0)
    >>> differences([a, a]), differences([a, Ran((), 0.0)])
    ([], ['run 2: expected 1 entries, got 0'])
    """
    first, *others = runs
    found = []
    for number, other in enumerate(others, start=2):
        if len(other.metrics) != len(first.metrics):
            found.append(f"run {number}: expected {len(first.metrics)} entries, got {len(other.metrics)}")
        found += [
            f"run {number}: expected {mine}, got {theirs}"
            for mine, theirs in zip(first.metrics, other.metrics, strict=False)
            if mine != theirs
        ]
    return found
