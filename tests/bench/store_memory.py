"""How much memory writing a part takes beyond the samples in hand; run in a process of its own."""

import sys
from pathlib import Path

from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from datagen.store.sample_data import SampleData
from tests.bench.store_samples import distinct_samples, wide_schema


def peak_extra_mib(root: Path, part_mib: int) -> float:
    """Write a part of `part_mib` MiB and return how far the peak of resident memory rose, in MiB."""
    schema = wide_schema()
    samples = distinct_samples(schema, part_mib * 2**20, n_buffers=2)
    write(root / "warm", samples[:2])
    Path("/proc/self/clear_refs").write_text("5")
    before = status_kib("VmRSS")
    write(root / "measured", samples)
    return (status_kib("VmHWM") - before) / 1024


def status_kib(name: str) -> int:
    """Return one of this process's figures; `VmHWM` is the peak since `clear_refs` was written to."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise RuntimeError(f"no {name} in /proc/self/status")


def write(root: Path, samples: list[SampleData]) -> None:
    """Write one part."""
    with PartWriter(LocalDoor(root), "bench", wide_schema(), "bench") as part:
        for sample in samples:
            part.add(sample)
        part.close()


if __name__ == "__main__":
    sys.stdout.write(str(peak_extra_mib(Path(sys.argv[1]), int(sys.argv[2]))))
