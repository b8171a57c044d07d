"""What the service counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """The counters of one application."""

    def __init__(self) -> None:
        here = CollectorRegistry()
        self.requests = Counter(
            "strata_requests", "Requests by route and status", ["method", "route", "status"], registry=here
        )
        self.seconds = Histogram("strata_request_seconds", "Until the last byte", ["route"], registry=here)
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
        self.in_flight = Gauge("strata_requests_in_flight", "Requests being answered", registry=here)
        self.registry = here

    def exposition(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)
