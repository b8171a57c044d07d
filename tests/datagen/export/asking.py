"""What the tests of exports ask for, and what they read of the outcome."""

from pathlib import Path

from datagen.export.exporting import Asked
from datagen.export.listed_files import SUMS


def asked(dataset: str, tmp_path: Path, **more: object) -> Asked:
    """Return what is asked for, into `out` of a test's own folder."""
    return Asked(dataset, "speculators", tmp_path / "out", **more)  # type: ignore[arg-type]


def listed(folder: Path) -> dict[str, str]:
    """Return what the list of an export says, as `sha256sum` reads it."""
    lines = (folder / SUMS).read_text().splitlines()
    return {path: digest for digest, path in (line.split("  ") for line in lines)}
