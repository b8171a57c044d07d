"""The run file of the 61-layer model plans its true size, and the page that shows the plan shows this one.

That of the demo's own answers asks its conversations.
"""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from datagen.commands.plan import Answer, make_answer
from datagen.commands.plan import _print as print_answer
from datagen.config import RunConfig, load_config
from datagen.engines.architecture import read_config_file
from datagen.engines.vllm_layers import Layers, layers_of
from datagen.placement import Node, group_of, most_workers, room_problems

ROOT = Path(__file__).parents[2]
N_TOKENS = 100_000 * 1024
ROW_BYTES = 7168 * 2
CHUNK_ROWS = 64
CHUNK_INDEX_BYTES = 16
SHARD_CRC_BYTES = 4


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """The configuration, read where `strata plan` is run: its model's config.json is named from there."""
    monkeypatch.chdir(ROOT)
    return load_config([], Path("deploy/runs/kimi-k2.5.toml"), "strata plan")


@pytest.fixture
def answer(config: RunConfig) -> Answer:
    """The plan; neither the bucket nor the model is there, and none is needed."""
    return make_answer(config)


def test_its_tensors_have_their_true_size(answer: Answer) -> None:
    """All rows, and beside them at most one padded chunk a part and the shards' indices."""
    rows = N_TOKENS * ROW_BYTES
    n_parts = answer.prediction.n_parts
    chunks = N_TOKENS // CHUNK_ROWS + n_parts
    most = n_parts * CHUNK_ROWS * ROW_BYTES + chunks * CHUNK_INDEX_BYTES + n_parts * SHARD_CRC_BYTES
    assert answer.prediction.n_tokens == N_TOKENS
    assert {spec.name: spec.boundary for spec in answer.schema.tensors} == {
        "embed": 0,
        "layer3": 3,
        "layer31": 31,
        "layer59": 59,
        "final": 61,
    }
    for name, size in answer.prediction.sizes.tensors.items():
        assert rows < size <= rows + most, name
    beside = answer.prediction.total_bytes - sum(answer.prediction.sizes.tensors.values())
    assert 0 < beside < 0.001 * 5 * rows


def test_its_parts_hold_a_whole_batch(config: RunConfig, answer: Answer) -> None:
    """A batch never reaches across parts: smaller ones would leave the GPUs half idle."""
    assert config.parts.max_bytes >= config.workers.batch_tokens * answer.schema.token_bytes
    assert config.workers.batch_tokens >= config.prompts.max_tokens
    largest = config.parts.max_bytes // (answer.schema.token_bytes * 1024)
    assert answer.prediction.n_parts == -(-100_000 // largest)


def test_two_nodes_of_eight_gpus_have_room_for_two_replicas(config: RunConfig) -> None:
    nodes = [Node("a", 96, 8), Node("b", 96, 8), Node("head", 8, 0)]
    assert most_workers(config.workers, nodes) == 2
    assert room_problems(config.workers, 2, nodes) == []
    assert config.engine.vllm.tensor_parallel == config.workers.gpus
    assert config.engine.vllm.max_model_len == config.prompts.max_tokens + 1


def test_the_other_way_that_it_names_can_be_placed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """One replica over both nodes."""
    monkeypatch.chdir(ROOT)
    flags = ["--engine.vllm.tensor_parallel", "16", "--engine.vllm.executor", "ray"]
    flags += ["--workers.gpus", "16", "--workers.nodes", "2"]
    config = load_config(flags, Path("deploy/runs/kimi-k2.5.toml"), "strata plan")
    assert most_workers(config.workers, [Node("a", 96, 8), Node("b", 96, 8)]) == 1
    group = group_of(config.workers, config.engine)
    assert group is not None
    assert len(group.bundles) == 16


def test_its_engine_gives_its_tensors(answer: Answer) -> None:
    """By the rules of the oldest vLLM that is taken, and from the model's own config."""
    text = read_config_file(ROOT / "deploy/runs/kimi-k2.5.config.json").get_text_config(decoder=True)
    layers = layers_of(answer.schema, "0.32.0", text)
    assert isinstance(layers, Layers)
    assert layers.embed_beside
    assert layers.ids == (3, 31, 59, 61)


def test_what_it_names_is_absolute(config: RunConfig) -> None:
    """The working folder of a Ray job is a copy: relative paths would mean that."""
    for path in (*config.prompts.paths, config.engine.model or ""):
        assert Path(path).is_absolute()
    assert re.match(r"\w+://", config.output.root)


def test_the_page_shows_this_plan(answer: Answer) -> None:
    written = io.StringIO()
    print_answer(answer, Console(file=written, highlight=False, soft_wrap=True, width=100))
    shown = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    target, *lines = [line.rstrip() for line in written.getvalue().splitlines()]
    assert target.endswith("L=61, H=7168")
    assert [line for line in lines if line not in shown] == []


def test_the_demo_that_answers_first_asks_each_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    given = ["--plan.tokens_per_second", "1000"]
    config = load_config(given, Path("deploy/runs/demo-generate.toml"), "strata plan")
    answer = make_answer(config)
    assert answer.job is not None
    assert answer.job.prepared.provenance.mode == "generate"
    assert answer.job.prepared.provenance.sampling == {
        "max_tokens": 96,
        "sample_tokens": 384,
        "temperature": 0.8,
        "top_p": 0.95,
        "stop": [],
        "stop_token_ids": [2],
        "seed": 0,
        "on_truncated": "keep",
    }
    stats = answer.job.prepared.stats
    assert stats.n_quarantined <= config.output.max_quarantined_share * stats.read
    assert answer.most is not None
    assert answer.prediction.n_tokens < answer.most.n_tokens <= 384 * answer.prediction.n_samples
    written = io.StringIO()
    print_answer(answer, Console(file=written, highlight=False, soft_wrap=True, width=100))
    assert f"at most {answer.most.n_tokens:,} tokens" in written.getvalue()
