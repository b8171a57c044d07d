"""Which code made a dataset: recorded with every run, never a reason to refuse."""

import importlib.metadata
import subprocess
from pathlib import Path

DISTRIBUTION = "strata-hidden-states"
RECORDED_PACKAGES = ("torch", "transformers", "ray", "numpy", "zarr", "pyarrow", "obstore", "pydantic")


def code_version() -> str:
    """Return the release, and in a checkout the commit: `0.1.0+g1a2b3c4d5e6f` (`.dirty` with changes)."""
    release = importlib.metadata.version(DISTRIBUTION)
    here = Path(__file__).resolve().parent
    try:
        described = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty=.dirty", "--abbrev=12", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return release  # installed from a wheel, or no git here
    return f"{release}+g{described.stdout.strip()}"


def package_versions() -> dict[str, str]:
    """Return the installed versions of what computes and writes."""
    versions = {}
    for name in RECORDED_PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions
