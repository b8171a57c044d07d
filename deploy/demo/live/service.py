"""`strata serve` in a process of its own, for as long as a block lasts; it tells no locations of files."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.demo.registry import DemoError


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """Serve the datasets of `root` on a free port, and give the URL; samples then travel over HTTP."""
    command = [sys.executable, "-m", "service", "--root", str(root), "--port", "0"]
    command += ["--locations", "off", "--log-level", "warning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            said = process.stdout.readline() if process.stdout is not None else ""
            _, found, rest = said.partition(" at ")
            if not found:
                raise DemoError(f"expected the service to say where it listens, got {said!r}")
            yield rest.split()[0]
        finally:
            process.terminate()
