"""What the service counts, for Prometheus: in one process, or summed over several by files in a folder.

The folder is `PROMETHEUS_MULTIPROC_DIR`, which must be set before a process imports the library.
"""

import os
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """The counters of one application."""

    def __init__(self) -> None:
        here = CollectorRegistry()
        self.requests = Counter(
            "strata_requests", "Requests by route and status", ["method", "route", "status"], registry=here
        )
        self.seconds = Histogram(
            "strata_request_seconds", "Until the last byte", ["route"], buckets=_SECONDS, registry=here
        )
        self.sent_bytes = Counter("strata_sent_bytes", "Bytes of bodies sent", ["route"], registry=here)
        self.checksum_failures = Counter(
            "strata_checksum_failures", "Answers in which damage was found", registry=here
        )
        self.refused_wirings = Counter(
            "strata_refused_wirings", "Requests that do not fit the dataset's schema", registry=here
        )
        self.aborted = Counter(
            "strata_aborted_responses", "Bodies that were broken off, by why", ["why"], registry=here
        )
        self.in_flight = Gauge(
            "strata_requests_in_flight",
            "Requests being answered",
            registry=here,
            multiprocess_mode="livesum",
        )
        self._registry = here

    def exposition(self) -> bytes:
        """Return everything in Prometheus' text format, over all processes."""
        folder = os.environ.get(FOLDER_VARIABLE)
        if folder is None:
            return generate_latest(self._registry)
        _forget_the_dead(Path(folder))
        together = CollectorRegistry()
        MultiProcessCollector(together, folder)  # type: ignore[no-untyped-call]
        return generate_latest(together)


def _forget_the_dead(folder: Path) -> None:
    """Leave out what processes that are gone had under way."""
    for file in folder.glob("gauge_livesum_*.db"):
        pid = int(file.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]
