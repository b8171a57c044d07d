"""The engine `openai` against a real `vllm serve`, started by the very command that the engine tells.

Only its connector is another: the shipped one copies through pinned memory, which a CPU has not.
"""

import json
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pytest

from datagen.engines.base import Engine
from datagen.engines.opening import open_engine, read_target
from datagen.engines.server_facts import server_command
from datagen.engines.settings import EngineSettings, OpenaiSettings
from schemas.boundary import all_names
from schemas.schema import Schema
from tests.contract.engine_contract import EngineContract, token_errors
from tests.oracle.vllm_cpu import HOME, INSIDE
from tests.with_vllm import small_models

N_LAYERS = 4
STARTING_SECONDS = 240
NAMES = ("embed", "layer2", "final", "final_normed")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineSettings]:
    folder = tmp_path_factory.mktemp("served")
    model = small_models.save("llama", folder / "llama")
    shared = folder / "shared"
    shared.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    settings = EngineSettings(
        name="openai",
        model=str(model),
        dtype="float32",
        openai=OpenaiSettings(
            base_url=f"http://127.0.0.1:{port}",
            shared_folder=str(shared),
            layer_ids=tuple(range(N_LAYERS + 1)),
            timeout_seconds=60.0,
        ),
    )
    with (folder / "log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(_command(settings, port), stdout=log, stderr=log, cwd=folder)
        try:
            _wait_for(settings, process, folder / "log")
            yield settings
        finally:
            process.terminate()
            process.wait(60)
    assert sorted(path.name for path in shared.iterdir()) == []


def _command(settings: EngineSettings, port: int) -> list[str]:
    """Return the command, with what a CPU and a small machine need."""
    words = shlex.split(server_command(settings, settings.openai.layer_ids))
    variables = [words.pop(0), "VLLM_CPU_KVCACHE_SPACE=1", f"PYTHONPATH={INSIDE}"]
    # Their console command asks for a package `vllm`, and the build for CPUs goes by another name.
    assert (words.pop(0), words.pop(0)) == ("vllm", "serve")
    serve = [str(HOME / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server", "--model"]
    at = words.index("--kv-transfer-config") + 1
    transfer = json.loads(words[at]) | {
        "kv_connector": "CpuHiddenStatesConnector",
        "kv_connector_module_path": "cpu_connector",
    }
    words[at] = json.dumps(transfer)
    small = ["--port", str(port), "--max-model-len", "256", "--max-num-seqs", "8", "--enforce-eager"]
    return ["env", *variables, *serve, *words, *small]


def _wait_for(settings: EngineSettings, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + STARTING_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(f"{settings.openai.base_url}/health", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(1)
    pytest.fail(f"the server does not start:\n{log.read_text(encoding='utf-8')[-4000:]}")


@pytest.fixture
def engine(settings: EngineSettings) -> Iterator[Engine]:
    engine = open_engine(settings, Schema.declare(read_target(settings), NAMES, settings.dtype))
    yield engine
    engine.close()


class TestServed(EngineContract):
    SAME_TOKEN_TOLERANCE = 1e-4


def test_every_boundary_is_that_of_transformers(
    settings: EngineSettings, engine: Engine, figures: list[str]
) -> None:
    """By token, with the nearest other boundary beside it."""
    rng = np.random.default_rng(3)
    batch = [rng.integers(0, engine.target.vocab_size, n).tolist() for n in (60, 1, 130, 17)]
    hf = EngineSettings(name="hf", model=settings.model, dtype="float32", device="cpu")
    names = all_names(N_LAYERS)
    every = Schema.declare(engine.target, names, "float32")
    want = open_engine(hf, every).submit(batch).result()
    got = engine.handing_out(every).submit(batch).result()
    for name in names:
        own = np.concatenate(
            [token_errors(one.tensors[name], two.tensors[name]) for one, two in zip(got, want, strict=True)]
        )
        rivals = {
            other: np.median(
                np.concatenate(
                    [
                        token_errors(one.tensors[name], two.tensors[other])
                        for one, two in zip(got, want, strict=True)
                    ]
                )
            )
            for other in names
            if other != name
        }
        nearest = min(rivals, key=lambda other: rivals[other])
        figures.append(
            f"openai llama float32 {name}: median {np.median(own):.1e}, most {own.max():.1e}; "
            f"nearest other {nearest} {rivals[nearest]:.2f}"
        )
        assert own.max() < 1e-4, name
        assert rivals[nearest] > 0.2, name


def test_what_was_proven(settings: EngineSettings, engine: Engine) -> None:
    assert engine.info.extra["proven"] == "embed, final"
    assert engine.info.version.startswith("vllm 0.32")
    assert os.listdir(settings.openai.shared_folder) == []
