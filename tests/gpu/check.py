"""Checks and times the hf engine and the store on a CUDA machine: `python tests/gpu/check.py`.

No Ray, no network, no model files: the models have random weights and are made on the spot. Beside torch,
transformers, numpy, zarr, obstore and pyarrow it needs pydantic, ml_dtypes and awscrt, which the schemas and
the store are built on; it looks for all of them first and says what is missing.

Checked on the device, in bfloat16: every boundary of several families equals transformers' own
`output_hidden_states` bit for bit in the same batch (to 0.5% where transformers itself does not repeat its
bits); padding does not leak; the head's choice on `final`; what the store wrote reads back bit for bit.
Timed by turns: tokens/s of the bare model, of the engine, and of the engine with the store writing behind
it; how long `submit` holds the host up; the store's GB/s. Each figure is a line of JSON.

Exit code 0: all well, 1: a check failed, 2: it could not try (no CUDA device, a package missing).
`--device cpu` runs the same on the CPU at toy size, to try the script itself: its figures mean nothing.
"""

import argparse
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

NEEDED = {
    "torch": "torch",
    "transformers": "transformers",
    "numpy": "numpy",
    "zarr": "zarr",
    "obstore": "obstore",
    "pyarrow": "pyarrow",
    "pydantic": "pydantic",
    "ml_dtypes": "ml_dtypes",
    "awscrt": "awscrt",
}
"""The packages by what they are imported as."""


def main() -> int:
    """Look for what is needed, then check, then time; return the exit code."""
    parser = argparse.ArgumentParser(description="check and time the hf engine and the store")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--folder", type=Path, help="where the store writes; default: a temporary folder")
    asked = parser.parse_args()
    if missing := [package for name, package in NEEDED.items() if find_spec(name) is None]:
        return _could_not_try(f"expected {', '.join(NEEDED)}, got no {', '.join(missing)}: install with pip")
    if asked.device == "cuda" and not import_module("torch").cuda.is_available():
        return _could_not_try("expected a CUDA device, got none that torch can use (--device cpu is a toy)")
    # A script's own folder is on the path, not the repository that it stands in.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    failed = import_module("tests.gpu.correctness").check(asked.device)
    failed += import_module("tests.gpu.timing").measure(asked.device, asked.folder)
    for line in failed:
        print(f"FAILED {line}", file=sys.stderr)  # noqa: T201
    return 1 if failed else 0


def _could_not_try(reason: str) -> int:
    print(f"could not try: {reason}", file=sys.stderr)  # noqa: T201
    return 2


if __name__ == "__main__":
    sys.exit(main())
