"""Places workers in a Ray cluster of a head and two nodes with two GPUs each, which are numbers, no devices.

Run by path of its module in a process of its own, so that no other test's cluster is in the way; prints what
came of it as JSON.
"""

import json
import platform
import sys
from dataclasses import replace
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from datagen.config import RaySettings
from datagen.driver.cluster import nodes_of
from datagen.driver.fleet import Fleet
from datagen.engines.base import EngineInfo
from datagen.engines.settings import EngineSettings, VllmSettings
from datagen.engines.synthetic import read_target
from datagen.errors import FleetError
from datagen.placement import WorkerSettings
from datagen.worker.actor import Worker, WorkerFacts, WorkOrder
from schemas.schema import Schema

SPREAD = EngineSettings(name="vllm", model="m", vllm=VllmSettings(tensor_parallel=4, executor="ray"))


@ray.remote(num_gpus=1, num_cpus=0)
class Rank:
    """Stands for a rank of tensor parallel, as vLLM's executor starts one for each GPU."""

    def node(self) -> str:
        return node()


def node() -> str:
    return str(ray.get_runtime_context().get_node_id())


class Placed(Worker):
    """A worker without an engine, which says where it is, and where ranks go that it starts."""

    def describe(self) -> WorkerFacts:
        ranks = []
        if self._order.engine.name == "vllm":
            actors = [Rank.remote() for _ in range(4)]  # type: ignore[attr-defined]
            ranks = ray.get([one.node.remote() for one in actors])
            self._kept = actors
        target = read_target(EngineSettings(name="synthetic"))
        device = ",".join(str(one) for one in ray.get_gpu_ids())
        return WorkerFacts(
            node(), 0, EngineInfo("placed", platform.python_version(), json.dumps(ranks), device), target
        )


def main(folder: Path) -> None:
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "num_gpus": 0, "include_dashboard": False},
    )
    for _ in range(2):
        cluster.add_node(num_cpus=1, num_gpus=2)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, namespace="strata")
    target = read_target(EngineSettings(name="synthetic"))
    schema = Schema.declare(target, ["embed"], "bfloat16")
    engine = EngineSettings(name="hf", model="m")
    order = WorkOrder(str(folder), "d", "r", schema, engine, 64)
    said: dict[str, object] = {"head": node()}

    def tried(name: str, workers: WorkerSettings, order: WorkOrder) -> None:
        fleet = Fleet(order, workers, RaySettings(), Placed)
        try:
            facts = fleet.start(4)
            said[name] = {
                "workers": [one.host for one in facts],
                "gpus": [one.engine.device for one in facts],
                "ranks": [json.loads(one.engine.dtype) for one in facts],
                "bundles": [nodes_of(replica.place) for replica in fleet._replicas],
            }
        except FleetError as error:
            said[name] = str(error)
        finally:
            fleet.close()

    tried("a node each", WorkerSettings(cpus=0.5, gpus=2), order)
    tried("spread", WorkerSettings(cpus=0.5, gpus=4, nodes=2), replace(order, engine=SPREAD))
    tried("too large", WorkerSettings(cpus=0.5, gpus=3, count=1), order)
    tried("too many", WorkerSettings(cpus=0.5, gpus=2, count=3), order)
    sys.stdout.write(json.dumps(said))
    sys.stdout.flush()
    ray.shutdown()
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
