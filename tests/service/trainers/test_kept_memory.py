"""What a process frees stays its own: seen by the memory that the kernel counts for it, in one of its own."""

import subprocess
import sys
from collections.abc import Mapping

import pytest

from service.trainers.kept_memory import OF_MALLOC, SAID, TUNABLES

ASKED = """
import os, sys
import torch
from service.trainers.kept_memory import keep_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

done = keep_freed_memory() if sys.argv[1] == "keep" else None
batches = [torch.ones(128 * 2**20, dtype=torch.uint8) for _ in range(2)]
with_both = resident()
del batches
print(done, with_both - resident())
"""
FREED = 256 * 2**20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of the GNU C library")


def freed(keep: bool, said: Mapping[str, str] | None = None) -> tuple[str, int]:
    """Return what `keep_freed_memory` said, and how many bytes went back to the kernel."""
    code = [sys.executable, "-c", ASKED, "keep" if keep else "leave"]
    plain = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run(code, env={**plain, **(said or {})}, capture_output=True, text=True, check=True)
    done, n_bytes = run.stdout.split()
    return done, int(n_bytes)


def test_batches_that_are_freed_stay_in_the_process() -> None:
    done, gone = freed(keep=True)
    assert done == "True"
    assert gone < FREED // 16


def test_without_it_they_go_back_to_the_kernel() -> None:
    _, gone = freed(keep=False)
    assert gone > FREED * 15 // 16


@pytest.mark.parametrize("said", [{name: "131072"} for name in SAID] + [{TUNABLES: f"{OF_MALLOC}check=0"}])
def test_who_has_said_otherwise_is_heeded(said: Mapping[str, str]) -> None:
    done, _ = freed(keep=True, said=said)
    assert done == "False"


def test_tunables_of_other_things_say_nothing() -> None:
    done, gone = freed(keep=True, said={TUNABLES: "glibc.rtld.nns=4"})
    assert (done, gone < FREED // 16) == ("True", True)
