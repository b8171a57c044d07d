"""The Ray cluster that the runs of a test session share."""

from collections.abc import Iterator

import pytest
import ray


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A Ray that the runs of a test session join, started once: starting it takes seconds."""
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, namespace="strata")
    yield
    ray.shutdown()
