"""A real vLLM for CPUs with Strata beside it: `python -m tests.with_vllm.environment` makes the environment.

It is the oracle's, in which the datagen room and pytest are installed too, so that an engine can be opened
beside transformers in one process.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tests.oracle import vllm_cpu

READY = vllm_cpu.HOME / "ready-for-strata"
ROOT = Path(__file__).parents[2]
INSTALLED = ("--editable", f"{ROOT}[datagen]", "pytest>=8.4", "hypothesis>=6.130", "psutil>=6")
_KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH")


def variables() -> dict[str, str]:
    """Return what a process inside lives with; nothing else of the caller's goes in."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "OMP_NUM_THREADS": "2",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        # It compiles small functions of the log-probabilities for most of a minute, to run them once.
        "TORCHDYNAMO_DISABLE": "1",
    }


def main() -> None:
    """Make the environment where it is missing, and bring it up to what the project says of itself now."""
    vllm_cpu.main()
    # Its commands and its requirements: the modules themselves are those of the folder, as they are.
    said = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if not READY.is_file() or READY.read_text(encoding="ascii") != said:
        sys.stderr.write("installing strata beside vllm-cpu (about a minute)\n")
        settings = ("--quiet", "--quiet", "--no-input", "--disable-pip-version-check", "--no-compile")
        command = [str(vllm_cpu.PYTHON), "-m", "pip", "install", *settings, *INSTALLED]
        subprocess.run(command, check=True)
        READY.write_text(said, encoding="ascii")


if __name__ == "__main__":
    main()
