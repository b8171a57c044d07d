"""The released wheels that the oracle reads: which versions, and their Python files in a git-ignored cache.

Only the `.py` files and the metadata are kept of each wheel, and nothing of them is ever committed.
`python -m tests.oracle.wheels [SYSTEM ...]` downloads what is missing with pip.
"""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / "data" / "cache" / "oracle"

# The last release before and the first after each change that a declared wiring knows of, and the newest.
RELEASES: dict[str, tuple[str, ...]] = {
    "sglang": ("0.4.8", "0.4.10", "0.5.11", "0.5.12.post1", "0.5.13", "0.5.16", "0.5.17", "0.5.18", "0.5.23"),
    "vllm": ("0.11.0", "0.17.0", "0.20.0", "0.22.0", "0.24.0", "0.25.0", "0.29.0", "0.33.0"),
    "speculators": ("0.3.0", "0.4.0", "0.5.0", "0.9.0"),
    "specforge": ("0.2.0",),
    "modelopt": ("0.47.0",),
    "automodel": ("0.7.0",),
    "eagle": ("1.2.1",),
}
# Of other authors, what their code imports and Strata's environment lacks.
BESIDE: dict[str, tuple[str, ...]] = {"fastchat": ("0.2.36",)}
# What the index calls them, and the package inside the wheel, where either is not the system's name.
_DISTRIBUTIONS = {
    "modelopt": "nvidia-modelopt",
    "automodel": "nemo-automodel",
    "eagle": "eagle-llm",
    "fastchat": "fschat",
}
_PACKAGES = {"automodel": "nemo_automodel"}

_PLATFORMS = (
    "any",
    "manylinux1_x86_64",
    "manylinux2014_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux_2_31_x86_64",
    "manylinux_2_34_x86_64",
    "manylinux_2_35_x86_64",
)
_METADATA = ".dist-info/METADATA"
"""Some packages ask for their own version while they are imported."""


def source(system: str, version: str) -> Path:
    """The folder that holds the package's modules.

    Raises FileNotFoundError where the release has not been downloaded.
    """
    folder = CACHE / f"{system}-{version}" / _PACKAGES.get(system, system)
    if not folder.is_dir():
        raise FileNotFoundError(f"{system} {version} is not in the oracle's cache: run make oracle")
    return folder


def is_cached(system: str, version: str) -> bool:
    return (CACHE / f"{system}-{version}").is_dir()


def missing(systems: Sequence[str] = ()) -> list[tuple[str, str]]:
    """The pinned releases that the cache lacks, of these systems or of all."""
    pinned = [
        (system, version)
        for system, versions in (RELEASES | BESIDE).items()
        for version in versions
        if system in systems or not systems
    ]
    return [pair for pair in pinned if not is_cached(*pair)]


def download(system: str, version: str) -> None:
    """Fetch one wheel and keep its Python files.

    Raises subprocess.CalledProcessError where pip finds no wheel.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=".partial-") as name:
        partial = Path(name)
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--quiet", "--no-deps", "--no-cache-dir")
        which = ["--only-binary", ":all:", "--python-version", "3.11"]
        for platform in _PLATFORMS:
            which += ["--platform", platform]
        wanted = f"{_DISTRIBUTIONS.get(system, system)}=={version}"
        patience = ("--timeout", "60", "--retries", "2")
        subprocess.run([*pip, *which, *patience, "--dest", name, wanted], check=True)
        (wheel,) = partial.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            kept = [member for member in archive.namelist() if member.endswith((".py", _METADATA))]
            archive.extractall(partial / "modules", kept)
        (partial / "modules").rename(CACHE / f"{system}-{version}")


def main() -> None:
    """Download every pinned release that is missing, of the systems in the arguments or of all."""
    for system, version in missing(sys.argv[1:]):
        sys.stderr.write(f"downloading {system} {version}\n")
        try:
            download(system, version)
        except subprocess.CalledProcessError as error:
            sys.exit(f"{system} {version} could not be downloaded: pip ended with {error.returncode}")


if __name__ == "__main__":
    main()
