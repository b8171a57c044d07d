"""Names that say which process left a file, so that what a dead one left is known by its name.

A process that is killed removes nothing. Whoever opens an engine on the same host later asks whose the files
are, and removes those of processes that are gone. Hosts are told by their boot and their namespace of process
ids: in another one the same number is another process. What a host left before it was started again is
nobody's to know, and stays.
"""

import hashlib
import os
import platform
import re
import uuid
from pathlib import Path

PREFIX = "strata"
BOOT = Path("/proc/sys/kernel/random/boot_id")
PROCESSES = Path("/proc/self/ns/pid")


def new_name() -> str:
    """Return a name of this process that was never given: `strata-HOST-PID-RANDOM-`."""
    return f"{PREFIX}-{_host()}-{os.getpid()}-{uuid.uuid4().hex[:12]}-"


def left_by_the_dead(name: str) -> bool:
    """Say whether `name` holds a name of a process of this host that is no more.

    >>> left_by_the_dead(new_name() + "0.safetensors"), left_by_the_dead("somebody-elses.safetensors")
    (False, False)
    """
    found = re.search(rf"{PREFIX}-{_host()}-(\d+)-[0-9a-f]{{12}}-", name)
    return found is not None and not _lives(int(found.group(1)))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # another user's
    return True


def _host() -> str:
    try:
        told = f"{BOOT.read_text()} {PROCESSES.readlink()}"
    except OSError:
        told = platform.node()
    return hashlib.sha256(told.encode()).hexdigest()[:12]
