"""Clones of projects that release no package with what they write by, where somebody has them.

`make oracle CHECKOUTS=DIR` finds them by the names that `git clone` gives them.
"""

import os
from pathlib import Path

VARIABLE = "CHECKOUTS"


def checkout(name: str) -> Path:
    """Return where a clone lies, or would lie: nothing is there where nobody has given any."""
    return Path(os.environ.get(VARIABLE, "/nonexistent")).absolute() / name
