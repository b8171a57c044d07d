"""speculators' own trainer on a CPU, every metric that it logs also written down as it is, unrounded.

`python -m deploy.demo.live.recorded_trainer METRICS (files | live) WORDS...` runs its own command line, or
`strata train-speculators`, in an environment that has it.
"""

import json
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from deploy.demo.incident.cpu_trainer import answer_for_cpu, train
from schemas.command import guarded
from service.commands.train_speculators import command

METRICS_LOGGER = "speculators.metrics"
UNEQUAL = "profile"
"""Its clock's, which no two runs share."""


def recorder(file: Path) -> Callable[[logging.LogRecord], bool]:
    """Return a filter that lets every record pass, and writes those of a step or an epoch down."""

    def record(entry: logging.LogRecord) -> bool:
        if isinstance(entry.msg, dict) and ("train" in entry.msg or "val" in entry.msg):
            said = {name: value for name, value in entry.msg.items() if name != UNEQUAL}
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({**said, "step": getattr(entry, "step", None)}) + "\n")
        return True

    return record


def run(arguments: Sequence[str]) -> int:
    """Train, and return the exit code."""
    metrics, kind, *words = arguments
    logging.getLogger(METRICS_LOGGER).addFilter(recorder(Path(metrics)))
    if kind == "live":
        answer_for_cpu()
        return guarded(command, words)
    train(words)
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
