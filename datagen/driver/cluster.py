"""The Ray cluster: joined or started, its nodes, and the places that workers are given in it."""

import logging
import os
import socket
from typing import Any, NamedTuple

import ray
from ray.exceptions import GetTimeoutError
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from datagen.config import RaySettings
from datagen.errors import FleetError
from datagen.placement import Group, Node
from schemas.problem import Problem

NAMESPACE = "strata"
PLACING_SECONDS = 60.0
"""How long a place may take: what it needs is known to be in the cluster, though others may hold it."""


LISTENING_SECONDS = 10.0


class Place(NamedTuple):
    """Where one worker goes: Ray's placement group, `None` for one that may go anywhere."""

    group: Group | None
    reserved: Any

    def options(self, cpus: float) -> dict[str, Any]:
        """Return the options of the actor that goes there."""
        if self.group is None:
            return {"num_cpus": cpus, "scheduling_strategy": "SPREAD"}
        strategy = PlacementGroupSchedulingStrategy(
            self.reserved, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
        )
        return {"num_cpus": cpus, "num_gpus": self.group.actor_gpus, "scheduling_strategy": strategy}


def join_cluster(settings: RaySettings) -> bool:
    """Join the cluster that is named, or start Ray here; return whether it was started here.

    Raises `FleetError` when the named cluster cannot be reached.
    """
    if ray.is_initialized():
        return False
    address = settings.address or os.environ.get("RAY_ADDRESS")
    try:
        if address:
            _check_listens(address)
            ray.init(address=address, namespace=NAMESPACE, logging_level=logging.WARNING, log_to_driver=False)
        else:
            ray.init(
                address="local",
                namespace=NAMESPACE,
                include_dashboard=False,
                logging_level=logging.ERROR,
                log_to_driver=False,
            )
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = address or "this machine"
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        problem = Problem(
            where="ray.address",
            kind="cluster",
            message=f"expected a Ray cluster at {where}, got: {said}",
            repair="a cluster with token authentication needs RAY_AUTH_MODE=token in this environment",
        )
        raise FleetError("cannot join Ray", [problem]) from error
    return address is None


def _check_listens(address: str) -> None:
    """Raise `ConnectionError` where nothing listens at HOST:PORT: Ray would wait for it for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), LISTENING_SECONDS).close()
        except OSError as error:
            raise ConnectionError(f"nothing answers there ({error})") from error


def living_nodes() -> list[Node]:
    """Return the nodes that live, and what they have in all."""
    told: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call, unused-ignore]
    nodes = []
    for one in told:
        if one["Alive"]:
            have = one["Resources"]
            nodes.append(Node(one["NodeManagerAddress"], have.get("CPU", 0.0), have.get("GPU", 0.0)))
    return nodes


def reserve(groups: "list[Group | None]", n_nodes: int) -> list[Place]:
    """Reserve a place for each worker, all before the first of them loads; none is kept when one fails.

    Raises `FleetError` when others hold what is needed, or a place lies on more than `n_nodes` nodes.
    """
    places = [
        Place(group, None if group is None else placement_group(list(group.bundles), strategy=group.strategy))
        for group in groups
    ]
    try:
        for number, place in enumerate(places):
            if place.group is not None:
                _wait_for(place, number, len(places), n_nodes)
    except FleetError:
        release(places)
        raise
    return places


def _wait_for(place: Place, number: int, count: int, n_nodes: int) -> None:
    try:
        ray.get(place.reserved.ready(), timeout=PLACING_SECONDS)
    except GetTimeoutError as error:
        free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call, unused-ignore]
        message = (
            f"expected {count} places for workers within {PLACING_SECONDS:.0f} s, got {number}: "
            f"{free.get('GPU', 0.0):g} GPUs and {free.get('CPU', 0.0):g} CPUs are free"
        )
        repair = "something else runs in the cluster: wait for it, or lower workers.count"
        problem = Problem(where="workers", kind="resources", message=message, repair=repair)
        raise FleetError("the cluster's resources are taken", [problem]) from error
    got = set(nodes_of(place))
    if len(got) > n_nodes:
        message = f"expected a worker's GPUs on {n_nodes} nodes, got {len(got)}, the others being taken"
        problem = Problem(where="workers.nodes", kind="resources", message=message)
        raise FleetError("the cluster's resources are scattered", [problem])


def nodes_of(place: Place) -> list[str]:
    """Return the id of the node of each bundle."""
    if place.group is None:
        return []
    told: dict[str, Any] = placement_group_table(place.reserved)
    return [told["bundles_to_node_id"][bundle] for bundle in range(len(place.group.bundles))]


def release(places: list[Place]) -> None:
    """Give the places back."""
    for place in places:
        if place.reserved is not None:
            remove_placement_group(place.reserved)
