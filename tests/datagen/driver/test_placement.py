"""Where workers go: what the settings may say, what fits, and where Ray puts them in a small cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datagen.config import load_config
from datagen.engines.settings import EngineSettings, OpenaiSettings, SglangSettings, VllmSettings
from datagen.errors import ConfigError
from datagen.placement import Node, WorkerSettings, group_of, most_workers, placement_problems, room_problems

ROOT = Path(__file__).parents[3]
HF = EngineSettings(name="hf", model="m")


def vllm(tensor_parallel: int, executor: str = "mp") -> EngineSettings:
    own = VllmSettings.model_validate({"tensor_parallel": tensor_parallel, "executor": executor})
    return EngineSettings(name="vllm", model="m", vllm=own)


def sglang(tensor_parallel: int) -> EngineSettings:
    own = SglangSettings(tensor_parallel=tensor_parallel)
    return EngineSettings(name="sglang", model="m", sglang=own)


@pytest.mark.parametrize(
    ("workers", "engine"),
    [
        ({}, HF),
        ({"gpus": 0.5}, HF),
        ({"gpus": 8}, HF),
        ({"gpus": 8}, vllm(8)),
        ({"gpus": 16, "nodes": 2}, vllm(16, "ray")),
        ({"gpus": 0.5}, vllm(1)),
        ({}, vllm(2)),
        ({}, EngineSettings(name="openai", model="m", openai=OpenaiSettings())),
    ],
)
def test_what_can_be_placed(workers: dict[str, Any], engine: EngineSettings) -> None:
    assert placement_problems(WorkerSettings(**workers), engine) == []


@pytest.mark.parametrize(
    ("workers", "engine", "where", "message"),
    [
        ({"gpus": 1.5}, HF, "workers.gpus", "expected a share of one GPU or whole ones, got 1.5"),
        (
            {"gpus": 16, "nodes": 2},
            HF,
            "workers.nodes",
            "expected 1 for an engine that stays on its node, got 2",
        ),
        ({"gpus": 4, "nodes": 2}, vllm(4), "workers.nodes", "expected 1 for an engine that stays"),
        (
            {"gpus": 15, "nodes": 2},
            vllm(15, "ray"),
            "workers.gpus",
            "expected a multiple of workers.nodes = 2",
        ),
        ({"gpus": 8}, vllm(4), "engine.vllm.tensor_parallel", "expected 8 as workers.gpus, got 4"),
        ({"gpus": 1}, EngineSettings(name="openai", model="m"), "workers.gpus", "expected none"),
        (
            {"gpus": 0.5},
            vllm(4),
            "workers.gpus",
            "expected 4, a whole one for each rank of engine.vllm.tensor_parallel, got 0.5",
        ),
        ({"gpus": 0}, vllm(4, "ray"), "workers.gpus", "expected 4, a whole one for each rank"),
        ({"gpus": 0.25}, vllm(4, "ray"), "workers.gpus", "expected 4, a whole one for each rank"),
        ({"gpus": 0}, sglang(8), "workers.gpus", "expected 8, a whole one for each rank"),
        ({"gpus": 0.5}, sglang(8), "workers.gpus", "expected 8, a whole one for each rank"),
    ],
)
def test_what_cannot_be_placed_anywhere(
    workers: dict[str, Any], engine: EngineSettings, where: str, message: str
) -> None:
    (problem,) = placement_problems(WorkerSettings(**workers), engine)
    assert problem.where == where
    assert message in problem.message


def test_a_configuration_is_refused_for_it(tmp_path: Path) -> None:
    flags = ["--output.root", str(tmp_path), "--output.dataset", "d", "--prompts.path", "p"]
    flags += [
        "--engine.model",
        "m",
        "--tensors.names",
        "final",
        "--workers.gpus",
        "16",
        "--workers.nodes",
        "2",
    ]
    with pytest.raises(ConfigError, match="expected 1 for an engine that stays on its node, got 2"):
        load_config(flags, None, "strata run")


def test_a_worker_that_starts_an_actor_a_gpu_gets_a_bundle_a_gpu() -> None:
    group = group_of(WorkerSettings(cpus=8, gpus=16, nodes=2), vllm(16, "ray"))
    assert group is not None
    assert group.strategy == "PACK"
    assert group.bundles == ({"CPU": 8.0, "GPU": 1.0}, *[{"GPU": 1.0}] * 15)
    assert group.actor_gpus == 0
    on_one = group_of(WorkerSettings(gpus=8), vllm(8, "ray"))
    assert on_one is not None
    assert on_one.strategy == "STRICT_PACK"
    whole = group_of(WorkerSettings(gpus=8), vllm(8))
    assert whole is not None
    assert whole.bundles == ({"CPU": 1.0, "GPU": 8.0},)
    assert whole.actor_gpus == 8
    assert group_of(WorkerSettings(cpus=0.5), HF) is None


TWO_BY_EIGHT = (Node("10.0.0.1", 96, 8), Node("10.0.0.2", 96, 8), Node("10.0.0.3", 8, 0))


@pytest.mark.parametrize(
    ("workers", "most"),
    [
        ({"gpus": 8}, 2),
        ({"gpus": 3}, 4),
        ({"gpus": 0.5}, 32),
        ({"gpus": 16, "nodes": 2}, 1),
        ({"gpus": 16, "nodes": 2, "cpus": 96}, 1),
        ({"gpus": 16, "nodes": 2, "cpus": 100}, 0),
        ({"gpus": 8, "nodes": 2, "cpus": 96}, 2),
        ({"gpus": 8, "nodes": 2, "cpus": 97}, 0),
        ({"gpus": 16}, 0),
        ({"gpus": 1, "cpus": 48}, 4),
        ({"cpus": 0.5}, 400),
    ],
)
def test_how_many_fit(workers: dict[str, Any], most: int) -> None:
    assert most_workers(WorkerSettings(**workers), TWO_BY_EIGHT) == most


def test_more_cpus_than_any_node_has_are_told_before_a_place_is_waited_for() -> None:
    """The CPUs of two nodes together are enough: a worker's actor is on one of them."""
    (problem,) = room_problems(WorkerSettings(cpus=100, gpus=16, nodes=2), 1, TWO_BY_EIGHT)
    assert problem.where == "workers.cpus"
    assert problem.message.startswith(
        "expected room for 1 workers with 8 GPUs on each of 2 nodes and 100 CPUs on one of them, got room "
        "for 0 (10.0.0.1 has"
    )


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0, 8.0]),
    st.sampled_from([0.5, 1.0, 8.0]),
    st.sampled_from([1, 2]),
    st.lists(st.tuples(st.integers(0, 16), st.integers(0, 8)), min_size=1, max_size=4),
)
def test_what_fits_has_no_problems_and_one_more_has(
    gpus: float, cpus: float, n_nodes: int, have: list[tuple[int, int]]
) -> None:
    nodes = [Node(str(number), n_cpus, n_gpus) for number, (n_cpus, n_gpus) in enumerate(have)]
    workers = WorkerSettings(cpus=cpus, gpus=gpus, nodes=n_nodes)
    most = most_workers(workers, nodes)
    if most:
        assert room_problems(workers, most, nodes) == []
    assert room_problems(workers, most + 1, nodes)


def test_what_is_missing_is_told_with_every_node() -> None:
    (problem,) = room_problems(WorkerSettings(gpus=16, cpus=4), 1, TWO_BY_EIGHT)
    assert problem.message == (
        "expected room for 1 workers with 16 GPUs and 4 CPUs on a node, got room for 0 (10.0.0.1 has 8 GPUs, "
        "96 CPUs; 10.0.0.2 has 8 GPUs, 96 CPUs; 10.0.0.3 has 0 GPUs, 8 CPUs)"
    )
    (problem,) = room_problems(WorkerSettings(gpus=8), 3, TWO_BY_EIGHT)
    assert problem.message.startswith("expected 3 x 8 GPUs in the cluster, got 16 (10.0.0.1 has 8 GPUs")


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the trial saw; its cluster is its own."""
    trial = "tests.datagen.driver.placing_trial"
    command = [sys.executable, "-m", trial, str(tmp_path_factory.mktemp("root"))]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.mark.slow
class TestInACluster:
    def test_a_worker_has_its_gpus_on_one_node(self, placed: dict[str, Any]) -> None:
        seen = placed["a node each"]
        assert len(set(seen["workers"])) == 2
        assert placed["head"] not in seen["workers"]
        assert seen["gpus"] == ["0,1", "0,1"]

    def test_a_workers_ranks_are_spread_over_its_nodes(self, placed: dict[str, Any]) -> None:
        seen = placed["spread"]
        (ranks,), (bundles,), (worker,) = seen["ranks"], seen["bundles"], seen["workers"]
        assert sorted(ranks) == sorted(bundles)
        assert len(set(ranks)) == 2
        assert {ranks.count(one) for one in set(ranks)} == {2}
        assert worker == bundles[0]
        assert placed["head"] not in ranks

    def test_what_does_not_fit_is_told_before_anything_starts(self, placed: dict[str, Any]) -> None:
        assert (
            "expected room for 1 workers with 3 GPUs and 0.5 CPUs on a node, got room for 0"
            in placed["too large"]
        )
        assert placed["too large"].count("has 2 GPUs, 1 CPUs") == 2
        assert "expected 3 x 2 GPUs in the cluster, got 4" in placed["too many"]
