"""Runs each test file inside, in a process of its own: a vLLM that has ended leaves memory behind."""

import subprocess
import sys
from pathlib import Path

from tests.oracle import vllm_cpu
from tests.with_vllm.environment import ROOT, main, variables

HERE = Path(__file__).parent


def run(arguments: list[str]) -> int:
    """Run the files in `arguments`, all without one, with pytest's other options; return how many failed."""
    named = [argument for argument in arguments if argument.endswith(".py")]
    options = [argument for argument in arguments if argument not in named]
    failed = 0
    for file in named or [str(path.relative_to(ROOT)) for path in sorted(HERE.glob("test_*.py"))]:
        # Theirs warns of itself in many places, which says nothing of ours.
        command = [str(vllm_cpu.PYTHON), "-m", "pytest", "-o", "filterwarnings=ignore", file, *options]
        failed += subprocess.run(command, cwd=ROOT, env=variables(), check=False).returncode != 0
    return failed


if __name__ == "__main__":
    main()
    sys.exit(run(sys.argv[1:]) != 0)
