"""What a worker reserves in the cluster, and where that fits: whole on a node, or its GPUs over several.

A worker that has GPUs is given them together before it starts (a placement group of Ray). The group is one
bundle on one node where the worker uses all of its GPUs itself. Where its engine starts a Ray actor for each
GPU (vLLM's executor `ray`), it is a bundle a GPU, the worker in the first: those may lie on several nodes.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from datagen.engines.settings import EngineSettings
from schemas.problem import Problem

Strategy = Literal["STRICT_PACK", "PACK"]


class WorkerSettings(BaseModel):
    """The fleet: one Ray actor an engine replica."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: PositiveInt | Literal["auto"] = Field(
        default="auto", description="auto: as many as the cluster's GPUs allow, one without GPUs"
    )
    cpus: PositiveFloat = Field(default=1.0, description="CPUs a worker reserves; fractions are well")
    gpus: float = Field(default=0.0, ge=0.0, description="GPUs a worker reserves, over all of its nodes")
    nodes: PositiveInt = Field(
        default=1, description="nodes that a worker's GPUs lie on; above 1 only with engine.vllm.executor ray"
    )
    batch_tokens: PositiveInt = Field(default=4096, description="tokens of a batch, padding included")
    units_in_flight: int = Field(default=2, ge=1, le=8, description="units handed to a worker at a time")
    unit_attempts: int = Field(
        default=3, ge=1, description="failures before a unit is halved, or a sample alone is given up"
    )
    max_refused: int = Field(
        default=100, ge=0, description="samples refused for content or poison before the run stops"
    )
    start_timeout_seconds: PositiveFloat = 1800.0


class Node(NamedTuple):
    """A node that lives, and what it has in all."""

    name: str
    cpus: float
    gpus: float


class Group(NamedTuple):
    """What one worker is given: bundles of resources, how they lie, and what of them its actor takes.

    The actor is in the first bundle; GPUs that it does not take are for the actors that its engine starts.
    """

    bundles: tuple[dict[str, float], ...]
    strategy: Strategy
    actor_gpus: float


def starts_ray_actors(engine: EngineSettings) -> bool:
    """Say whether an engine starts a Ray actor for each of its GPUs."""
    return engine.name == "vllm" and engine.vllm.executor == "ray" and engine.vllm.tensor_parallel > 1


def group_of(workers: WorkerSettings, engine: EngineSettings) -> Group | None:
    """Return what a worker is given, `None` for one without GPUs: it goes wherever there are CPUs.

    >>> group = group_of(WorkerSettings(cpus=0.5, gpus=2), EngineSettings(name="hf", model="m"))
    >>> group.bundles, group.strategy, group.actor_gpus
    (({'CPU': 0.5, 'GPU': 2.0},), 'STRICT_PACK', 2.0)
    """
    if workers.gpus == 0:
        return None
    if not starts_ray_actors(engine):
        return Group(({"CPU": workers.cpus, "GPU": workers.gpus},), "STRICT_PACK", workers.gpus)
    first = {"CPU": workers.cpus, "GPU": 1.0}
    bundles = (first, *({"GPU": 1.0} for _ in range(int(workers.gpus) - 1)))
    return Group(bundles, "STRICT_PACK" if workers.nodes == 1 else "PACK", 0.0)


def most_workers(workers: WorkerSettings, nodes: Sequence[Node]) -> int:
    """Return how many workers the nodes have room for.

    >>> most_workers(WorkerSettings(gpus=8), [Node("a", 64, 8), Node("b", 64, 8), Node("head", 4, 0)])
    2
    """
    gpus = workers.gpus / workers.nodes
    by_gpus = [_times(node.gpus, gpus) for node in nodes]
    # Its actor, with its CPUs, is on one of its nodes.
    actors = sum(
        min(_times(node.cpus, workers.cpus), most) for node, most in zip(nodes, by_gpus, strict=True)
    )
    return min(actors, sum(by_gpus) // workers.nodes)


def _times(have: float, need: float) -> int:
    return int((have + 1e-9) // need) if need else 1 << 30


def room_problems(workers: WorkerSettings, count: int, nodes: Sequence[Node]) -> list[Problem]:
    """Return why `count` workers cannot be placed: what they need, what the cluster has, and each node."""
    problems = [
        _problem(
            f"workers.{what.lower()}s", f"expected {count} x {need:g} {what}s in the cluster, got {have:g}"
        )
        for what, need, have in (
            ("CPU", workers.cpus, sum(node.cpus for node in nodes)),
            ("GPU", workers.gpus, sum(node.gpus for node in nodes)),
        )
        if count * need > have + 1e-9
    ]
    if not problems and (most := most_workers(workers, nodes)) < count:
        by_gpus = sum(_times(node.gpus, workers.gpus / workers.nodes) for node in nodes) // workers.nodes
        where = "workers.nodes" if by_gpus < count else "workers.cpus"
        problems.append(
            _problem(where, f"expected room for {count} workers with {_a_node(workers)}, got room for {most}")
        )
    if problems:
        each = "; ".join(f"{node.name} has {node.gpus:g} GPUs, {node.cpus:g} CPUs" for node in nodes)
        problems[-1] = problems[-1].model_copy(update={"message": f"{problems[-1].message} ({each})"})
    return problems


def _a_node(workers: WorkerSettings) -> str:
    """Return in words what a worker needs of a node, or of each of its nodes."""
    gpus, cpus = f"{workers.gpus / workers.nodes:g} GPUs", f"{workers.cpus:g} CPUs"
    if workers.nodes > 1:
        return f"{gpus} on each of {workers.nodes} nodes and {cpus} on one of them"
    return f"{gpus} and {cpus} on a node" if workers.gpus else f"{cpus} on a node"


def placement_problems(workers: WorkerSettings, engine: EngineSettings) -> list[Problem]:
    """Return what of the settings cannot be placed in any cluster."""
    told: list[tuple[str, str, str | None]] = []
    gpus, nodes = workers.gpus, workers.nodes
    if gpus > 1 and not gpus.is_integer():
        told.append(("workers.gpus", f"expected a share of one GPU or whole ones, got {gpus:g}", None))
    if nodes > 1 and gpus % nodes:
        message = f"expected a multiple of workers.nodes = {nodes}, got {gpus:g}"
        told.append(("workers.gpus", message, None))
    if nodes > 1 and (gpus == 0 or not starts_ray_actors(engine)):
        message = f"expected 1 for an engine that stays on its node, got {nodes}"
        repair = 'engine vllm spreads over nodes, with engine.vllm.executor = "ray" and tensor_parallel'
        told.append(("workers.nodes", message, repair))
    told += _rank_problems(gpus, engine)
    if engine.name == "openai" and gpus:
        message = f"expected none for an engine whose model is on a server, got {gpus:g}"
        told.append(("workers.gpus", message, None))
    return [
        Problem(where=where, kind="placement", message=message, repair=repair)
        for where, message, repair in told
    ]


def _rank_problems(gpus: float, engine: EngineSettings) -> list[tuple[str, str, str | None]]:
    """Return what is wrong with a worker's GPUs for the ranks of its engine, each of which needs a whole one.

    Ranks of vLLM that are processes of the worker's host may all run on the CPU.
    """
    parallel = {"vllm": engine.vllm.tensor_parallel, "sglang": engine.sglang.tensor_parallel}.get(engine.name)
    on_cpu = gpus == 0 and engine.name == "vllm" and not starts_ray_actors(engine)
    if parallel is None or gpus == parallel or on_cpu or (parallel == 1 and gpus < 1):
        return []
    where = f"engine.{engine.name}.tensor_parallel"
    if gpus >= 1:
        return [(where, f"expected {gpus:g} as workers.gpus, got {parallel}", None)]
    return [
        ("workers.gpus", f"expected {parallel}, a whole one for each rank of {where}, got {gpus:g}", None)
    ]


def _problem(where: str, message: str) -> Problem:
    repair = "lower workers.count or what a worker reserves, or add nodes"
    return Problem(where=where, kind="resources", message=message, repair=repair)
