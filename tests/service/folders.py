"""A folder's content, to be compared before and after."""

from pathlib import Path


def content_of(root: Path) -> dict[str, bytes]:
    """Return every file under `root` with its bytes."""
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }
