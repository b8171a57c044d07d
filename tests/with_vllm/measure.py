"""How fast vLLM hands states over: our engine, its own connector to files, plain prefill; the engine hf too.

Tokens a second of real SmolLM2 in bfloat16, 5 tensors a token, as the best of three goes, each way in a
process of its own inside, which `tests.bench.vllm_capture` starts in turn.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings
from deploy.demo.model import MODEL
from schemas.schema import Schema
from tests.oracle import vllm_cpu
from tests.with_vllm.environment import ROOT, variables

IDS = (0, 2, 15, 27, 30)
NAMES = ("embed", "layer2", "layer15", "layer27", "final")
SAMPLES, LENGTH, GOES = 32, 128, 3
Way = Literal["engine vllm", "vLLM to files", "vLLM prefill", "engine hf"]
WAYS: tuple[Way, ...] = get_args(Way)


def prompts() -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 49152, LENGTH).tolist() for _ in range(SAMPLES)]


def goer(way: str, folder: Path) -> Callable[[Sequence[Sequence[int]]], Any]:
    """Return what runs a batch to its end, one way; vLLM is loaded inside alone."""
    from tests.with_vllm.opened import start

    if way == "engine hf":
        settings = EngineSettings(model=str(MODEL), device="cpu")
        engine = open_engine(settings, Schema.declare(read_target(settings), NAMES, "bfloat16"))
        return lambda batch: engine.submit(batch).result()
    if way == "engine vllm":
        captured = start(MODEL, "bfloat16", NAMES, max_num_batched_tokens=2048)
        return lambda batch: captured.submit(batch).result()
    return _plain(folder if way == "vLLM to files" else None)


def _plain(folder: Path | None) -> Callable[[Sequence[Sequence[int]]], Any]:
    """Return vLLM as its own users run it, with its own connector of files or with none."""
    from vllm import LLM, SamplingParams

    settings: dict[str, Any] = {
        "model": str(MODEL),
        "dtype": "bfloat16",
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "max_model_len": 256,
        "max_num_seqs": 32,
        "max_num_batched_tokens": 2048,
        "kv_cache_memory_bytes": 1 << 29,
    }
    if folder is not None:
        sys.path.insert(0, str(vllm_cpu.INSIDE))
        draft = {"hf_config": {"eagle_aux_hidden_state_layer_ids": list(IDS)}}
        settings["speculative_config"] = {
            "method": "extract_hidden_states",
            "num_speculative_tokens": 1,
            "draft_model_config": draft,
        }
        settings["kv_transfer_config"] = {
            "kv_connector": "CpuHiddenStatesConnector",
            "kv_connector_module_path": "cpu_connector",
            "kv_role": "kv_producer",
            "kv_connector_extra_config": {"shared_storage_path": str(folder)},
        }
    llm = LLM(**settings)
    expected = 0
    one = SamplingParams(temperature=0, max_tokens=1, detokenize=False)

    def go(batch: Sequence[Sequence[int]]) -> None:
        nonlocal expected
        expected += len(batch)
        asked: Any = [{"prompt_token_ids": list(ids)} for ids in batch]
        llm.generate(asked, one, use_tqdm=False)
        while folder is not None and len(list(folder.glob("*.safetensors"))) < expected:
            llm.llm_engine.step()

    return go


def measure(way: str) -> float:
    """Return tokens a second, the best of some goes after one that warms up."""
    with tempfile.TemporaryDirectory() as folder:
        go = goer(way, Path(folder))
        batch = prompts()
        go(batch)
        seconds = []
        for _ in range(GOES):
            begun = time.perf_counter()
            go(batch)
            seconds.append(time.perf_counter() - begun)
    return SAMPLES * LENGTH / min(seconds)


def asked(way: Way) -> float:
    """Return tokens a second one way, in a process inside; raises `CalledProcessError` where it fails."""
    command = [str(vllm_cpu.PYTHON), "-m", "tests.with_vllm.measure", way]
    inside = variables() | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    done = subprocess.run(command, cwd=ROOT, env=inside, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["tokens_per_second"])


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"tokens_per_second": measure(sys.argv[1])}) + "\n")
    sys.stdout.flush()
    # A vLLM that ends by itself waits for what it no longer needs.
    os._exit(0)
