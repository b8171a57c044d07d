"""One training run: speculators' own trainer in a process of its own, and what it reported at the end.

A draft is made whole or not at all: the run works under a hidden name, which is renamed when it ended well.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from deploy.demo.incident.environment import make_environment
from deploy.demo.model import MODEL
from deploy.demo.registry import DemoError
from deploy.demo.whole import making

LAUNCHER = Path(__file__).with_name("cpu_trainer.py")
DRAFT_VOCABULARY = 4096
TOKENS_A_STEP = 3 * 384
"""Three samples of the demo, which are cut at 384 tokens."""
STEPS_DEEP = 3
LOG = "log"
_STEP = re.compile(r"global_step\D{1,4}(\d+)")


@dataclass(frozen=True)
class Course:
    """How a draft is trained, beside what it is trained on; the same for both."""

    steps: int
    train_ratio: float
    layer_ids: tuple[int, ...] = (2, 15, 27)
    """What goes into the draft's config, for servers to read."""
    epochs: int = 1
    steps_deep: int = STEPS_DEEP

    def __str__(self) -> str:
        return f"{self.steps}-steps"


@dataclass(frozen=True)
class Trained:
    """A draft, and the accuracy at step 1 that its trainer reported on its validation rows."""

    folder: Path
    reported: float
    seconds: float


def train_both(data: Mapping[str, Path], place: Path, course: Course) -> dict[str, Trained]:
    """Return a draft for each kind of data, trained at once, a core each, when it is not there yet."""
    environment = make_environment()
    places = {name: place / f"draft-{folder.name}-{course}" for name, folder in data.items()}
    with (
        Console(file=sys.stderr).status("training") as status,
        ThreadPoolExecutor(len(data)) as pool,
    ):
        running = {
            name: pool.submit(train, folder, places[name], course, environment)
            for name, folder in data.items()
        }
        while not all(future.done() for future in running.values()):
            time.sleep(1)
            steps = [f"{name}: step {_step(places[name])}" for name in running]
            status.update(f"training two drafts, {', '.join(steps)}")
        return {name: future.result() for name, future in running.items()}


def train(data: Path, place: Path, course: Course, environment: Path) -> Trained:
    """Return the draft at `place`, trained on `data` when it is not there yet."""
    with making(place) as partial:
        if partial is not None:
            partial.mkdir(parents=True)
            begun = time.monotonic()
            _run(_words(data, partial, course), partial / LOG, environment)
            seconds = round(time.monotonic() - begun, 1)
            (partial / "seconds.json").write_text(json.dumps(seconds), encoding="utf-8")
    draft = place / str(course.epochs - 1)
    metrics = json.loads((draft / "val_metrics.json").read_text(encoding="utf-8"))
    seconds = json.loads((place / "seconds.json").read_text(encoding="utf-8"))
    return Trained(draft, float(metrics["full_acc_0_epoch"]), float(seconds))


def _words(data: Path, place: Path, course: Course) -> list[str]:
    settings = {
        "speculator-type": "eagle3",
        "verifier-name-or-path": MODEL.resolve(),
        "data-path": data.resolve(),
        "train-data-ratio": course.train_ratio,
        "draft-vocab-size": DRAFT_VOCABULARY,
        "total-seq-len": TOKENS_A_STEP,
        "epochs": course.epochs,
        "max-steps": course.steps,
        "lr": 1e-3,
        "ttt-steps": course.steps_deep,
        "num-workers": 0,
        "on-missing": "raise",
        "full-attention-indices": 0,
        "loss-implementation": "eager",
        "draft-attn-impl": "eager",
        "seed": 0,
        "log-freq": 5,
        "save-path": place.resolve(),
    }
    words = [piece for name, value in settings.items() for piece in (f"--{name}", str(value))]
    words += ["--target-layer-ids", *map(str, course.layer_ids)]
    return words


def _run(words: list[str], log: Path, environment: Path) -> None:
    """Run the trainer, its output in `log`; raises `DemoError` with the end of it when it fails."""
    given = os.environ | {"PYTHONPATH": str(environment), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("w", encoding="utf-8") as out:
        command = [sys.executable, str(LAUNCHER), *words]
        ran = subprocess.run(
            command, env=given, stdout=out, stderr=out, stdin=subprocess.DEVNULL, check=False
        )
    if ran.returncode:
        tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise DemoError(f"{log.parent}: the trainer ended with exit status {ran.returncode}\n{tail}")


def _step(place: Path) -> str:
    """Return the last step that a log tells of; while a draft is made, it lies under a hidden name."""
    log = place.parent / f".{place.name}.partial" / LOG
    found = _STEP.findall(log.read_text(encoding="utf-8", errors="replace")) if log.is_file() else []
    return found[-1] if found else "0"
