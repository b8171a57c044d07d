"""Counters of several processes are one sum, and what a dead process had under way is forgotten."""

import os
import subprocess
import sys
from pathlib import Path

from service.metrics import FOLDER_VARIABLE, Metrics

COUNTING = """
import os, sys
from service.metrics import Metrics
metrics = Metrics()
metrics.refused_wirings.inc()
metrics.in_flight.inc()
if sys.argv[1] == "tell":
    print(metrics.exposition().decode())
os._exit(0)
"""


def count(folder: Path, word: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", COUNTING, word],
        env={**os.environ, FOLDER_VARIABLE: str(folder)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_processes_count_together(tmp_path: Path) -> None:
    count(tmp_path, "die")
    told = count(tmp_path, "tell").splitlines()
    assert "strata_refused_wirings_total 2.0" in told
    assert "strata_requests_in_flight 1.0" in told


def test_two_applications_of_a_process_count_apart() -> None:
    first, second = Metrics(), Metrics()
    first.refused_wirings.inc()
    assert b"strata_refused_wirings_total 1.0" in first.exposition()
    assert b"strata_refused_wirings_total 0.0" in second.exposition()
