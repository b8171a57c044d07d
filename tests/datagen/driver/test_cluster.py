"""The Ray cluster that is named: told where nothing listens, in place of Ray's minutes of waiting."""

import socket

import pytest

from datagen.config import RaySettings
from datagen.driver.cluster import join_cluster
from datagen.errors import FleetError


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_cluster_where_nothing_listens_is_told_at_once(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(FleetError, match=f"a Ray cluster at {address}, got: nothing answers there"):
            join_cluster(RaySettings(address=address))
