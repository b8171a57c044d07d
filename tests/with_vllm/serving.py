"""A real `vllm serve` as a process beside a test, started by the very command that the engine `openai` tells.

Only its connector is another: the shipped one copies through pinned memory, which a CPU has not.
"""

import json
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from datagen.engines.server_facts import server_command
from datagen.engines.settings import EngineSettings, OpenaiSettings
from schemas.schema import DType
from tests.oracle.vllm_cpu import INSIDE, PYTHON

STARTING_SECONDS = 240
SHARED = "shared"


class ServingError(RuntimeError):
    """The server did not start: the end of what it wrote says why."""


def served(model: Path, layer_ids: Sequence[int], dtype: DType, folder: Path) -> EngineSettings:
    """Return how a server of `model` at a free port is asked, which will share `folder/shared`."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    (folder / SHARED).mkdir()
    return EngineSettings(
        name="openai",
        model=str(model.resolve()),
        dtype=dtype,
        openai=OpenaiSettings(
            base_url=f"http://127.0.0.1:{port}",
            shared_folder=str(folder / SHARED),
            layer_ids=tuple(layer_ids),
            timeout_seconds=60.0,
        ),
    )


@contextmanager
def serving(
    settings: EngineSettings, folder: Path, longest: int = 256, more: Sequence[str] = ()
) -> Iterator[None]:
    """Run the server for as long as this is open; it writes to `folder/log`.

    Raises ServingError where it does not start.
    """
    log = folder / "log"
    with log.open("w", encoding="utf-8") as out:
        command = _command(settings, longest, more)
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)
        try:
            _wait_for(settings, process, log)
            yield
        finally:
            process.terminate()
            process.wait(60)


def _command(settings: EngineSettings, longest: int, more: Sequence[str]) -> list[str]:
    """Return the command, with what a CPU and a small machine need."""
    words = shlex.split(server_command(settings, settings.openai.layer_ids))
    variables = [words.pop(0), "VLLM_CPU_KVCACHE_SPACE=1", f"PYTHONPATH={INSIDE}"]
    # Their console command asks for a package `vllm`, and the build for CPUs goes by another name.
    if (words.pop(0), words.pop(0)) != ("vllm", "serve"):
        raise ServingError(f"expected a command `vllm serve`, got {server_command(settings, ())}")
    serve = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model"]
    at = words.index("--kv-transfer-config") + 1
    transfer = json.loads(words[at]) | {
        "kv_connector": "CpuHiddenStatesConnector",
        "kv_connector_module_path": "cpu_connector",
    }
    words[at] = json.dumps(transfer)
    port = str(urlsplit(settings.openai.base_url).port)
    small = ["--port", port, "--max-model-len", str(longest), "--max-num-seqs", "8", "--enforce-eager"]
    return ["env", *variables, *serve, *words, *small, *more]


def _wait_for(settings: EngineSettings, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + STARTING_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(f"{settings.openai.base_url}/health", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(1)
    raise ServingError(f"the server does not start:\n{log.read_text(encoding='utf-8')[-4000:]}")
