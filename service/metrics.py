"""What the service counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """The counters of one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "strata_requests",
            "Requests by route and status",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "strata_request_seconds", "Time until the last byte", ["route"], registry=self.registry
        )
        self.sent_bytes = Counter(
            "strata_sent_bytes", "Bytes of bodies sent", ["route"], registry=self.registry
        )
        self.checksum_failures = Counter(
            "strata_checksum_failures", "Answers that damage was found for", registry=self.registry
        )
        self.refused_wirings = Counter(
            "strata_refused_wirings",
            "Requests whose schema or wiring is not the dataset's",
            registry=self.registry,
        )
        self.aborted = Counter(
            "strata_aborted_responses", "Bodies that were broken off, by why", ["why"], registry=self.registry
        )
        self.in_flight = Gauge("strata_requests_in_flight", "Requests being answered", registry=self.registry)

    def exposition(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)
