"""What a process frees stays its own: seen by the memory that the kernel counts for it, in one of its own."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from service.trainers import kept_memory
from service.trainers.kept_memory import (
    GROWTH_BYTES,
    LOOK_BYTES,
    OF_MALLOC,
    SAID,
    TUNABLES,
    KeptMemory,
    keep_freed_memory,
)

ASKED = """
import os, sys
import torch
from service.trainers.kept_memory import keep_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

done = (keep_freed_memory() if sys.argv[1] == "keep" else None) is not None
batches = [torch.ones(128 * 2**20, dtype=torch.uint8) for _ in range(2)]
with_both = resident()
del batches
print(done, with_both - resident())
"""
FREED = 256 * 2**20
BETWEEN = """
import torch
from service.trainers import kept_memory
from service.trainers.kept_memory import LOOK_BYTES, keep_freed_memory, own_bytes

kept_memory.GROWTH_BYTES = 2**28
kept = keep_freed_memory()

def freed_between_others(n):
    batches = [torch.ones((32, 1)[i % 2] * 2**20, dtype=torch.uint8) for i in range(2 * n)]
    return batches[1::2]

left = []
for n in (4, 12):
    left.append(freed_between_others(n))
    before = own_bytes()
    kept.bound(LOOK_BYTES)
    print(before - own_bytes())
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of the GNU C library")


def plain() -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}


def freed(keep: bool, said: Mapping[str, str] | None = None) -> tuple[str, int]:
    """Return what `keep_freed_memory` said, and how many bytes went back to the kernel."""
    code = [sys.executable, "-c", ASKED, "keep" if keep else "leave"]
    run = subprocess.run(code, env={**plain(), **(said or {})}, capture_output=True, text=True, check=True)
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


def test_what_lies_between_others_is_given_back_when_it_is_much() -> None:
    """Four times 32 MiB stay; of sixteen, where 256 MiB are the bound, nothing does."""
    ran = subprocess.run(
        [sys.executable, "-c", BETWEEN], env=plain(), capture_output=True, text=True, check=True
    )
    few, many = map(int, ran.stdout.split())
    assert few == 0
    assert many > FREED


def test_it_looks_once_much_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([0, 2 * GROWTH_BYTES, GROWTH_BYTES])
    monkeypatch.setattr(kept_memory, "own_bytes", lambda: next(sizes))
    trimmed: list[int] = []

    def trim(pad: int) -> int:
        trimmed.append(pad)
        return 1

    kept = KeptMemory(trim)
    kept.bound(LOOK_BYTES - 1)
    assert not trimmed
    kept.bound(1)
    assert trimmed == [0]
    assert next(sizes, None) is None


@pytest.mark.parametrize("lacks", ["mallopt", "malloc_trim", "statm"])
def test_another_c_library_is_left_alone(lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SAID, TUNABLES):
        monkeypatch.delenv(name, raising=False)
    told: list[tuple[int, ...]] = []

    def mallopt(*words: int) -> int:
        told.append(words)
        return 1

    there = {"mallopt": mallopt, "malloc_trim": lambda _: 1}
    library = SimpleNamespace(**{name: is_there for name, is_there in there.items() if name != lacks})
    monkeypatch.setattr("ctypes.CDLL", lambda _: library)
    if lacks == "statm":
        monkeypatch.setattr(kept_memory, "_PAGES", tmp_path / "statm")
    assert keep_freed_memory() is None
    assert not told
