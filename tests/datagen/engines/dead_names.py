"""A name as a process gives its files, of a process that is no more."""

import subprocess
import sys


def name_of_the_dead() -> str:
    """Return a name that a process of this host gave; it has ended, and was waited for."""
    say = "from datagen.engines.owned_names import new_name; print(new_name())"
    return subprocess.run(
        [sys.executable, "-c", say], check=True, capture_output=True, text=True
    ).stdout.strip()
