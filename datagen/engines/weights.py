"""A digest of a model's weights that reads a few MB of them, whatever their size.

Where the files came from the hub and its own hashes are at hand, those are digested: in the hub's cache a
snapshot's file is a link to a blob that is named by its sha256; in a folder filled by `hf download
--local-dir` a `.metadata` file beside it holds that hash and the time. Else each file's name, size,
safetensors header and a fixed sample of its bytes are: enough to tell models, revisions, fine-tunes and
truncated files apart, though not to find one changed value in a file.
"""

import os
import re
import struct
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from schemas.problem import Problem
from schemas.record import canonical_json, sha256_hex
from schemas.target import DigestMethod, WeightsDigest

SAMPLES_A_FILE = 64
SAMPLE_BYTES = 4096
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_HEADER_BYTES = 100 << 20  # safetensors' own limit


def weights_digest(folder: Path, method: DigestMethod | None = None) -> WeightsDigest | Problem:
    """Return the digest of the weights in `folder`, or what is wrong with them.

    safetensors files are taken, and only where there are none the `.bin` files of older models. With `method`
    "sampled_safetensors" their bytes are sampled though the hub's hashes are at hand: to compare with a
    digest that was made so.
    """
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    if not files:
        return Problem(
            where=str(folder), kind="weights", message="expected *.safetensors files, got none in the folder"
        )
    hashes = {file.name: hub_hash(file) for file in files}
    if all(hashes.values()) and method != "sampled_safetensors":
        return digest_of("hub_file_hashes", hashes)
    sampled: dict[str, str | None] = {}
    for file in files:
        facts = _sampled(file)
        if isinstance(facts, Problem):
            return facts
        sampled[file.name] = facts
    return digest_of("sampled_safetensors", sampled)


def digest_of(method: DigestMethod, hashes: dict[str, str | None]) -> WeightsDigest:
    """Return the digest over the hashes of files by name."""
    return WeightsDigest(method=method, sha256=sha256_hex(canonical_json([method, hashes])))


def hub_hash(file: Path) -> str | None:
    """Return the sha256 that the hub knows a downloaded file by, or `None` where it is not at hand."""
    if file.is_symlink():
        blob = Path(os.readlink(file))
        if blob.parent.name == "blobs" and _SHA256.fullmatch(blob.name):
            return blob.name
    record = file.parent / ".cache" / "huggingface" / "download" / f"{file.name}.metadata"
    if not record.is_file():
        return None
    lines = record.read_text().split()
    if len(lines) != 3 or not _SHA256.fullmatch(lines[1]):
        return None
    # Written after the file: a file that is younger than its record was changed since.
    return lines[1] if file.stat().st_mtime <= float(lines[2]) + 1 else None


def missing_shards(folder: Path) -> list[str]:
    """Return the files that the model's own index names and `folder` lacks, none where there is no index."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return []
    names = set(re.findall(r'"([^"/]+\.safetensors)"', index.read_text("utf-8")))
    return sorted(name for name in names if not (folder / name).is_file())


def _sampled(file: Path) -> str | Problem:
    size_bytes = file.stat().st_size
    digest = sha256(canonical_json([file.name, size_bytes]))
    with open(file, "rb") as stream:
        start = 0
        if file.suffix == ".safetensors":
            header = stream.read(8)
            length = struct.unpack("<Q", header)[0] if len(header) == 8 else _MAX_HEADER_BYTES + 1
            if length > min(_MAX_HEADER_BYTES, size_bytes - 8):
                return Problem(
                    where=str(file),
                    kind="weights",
                    message=f"expected a safetensors file, got {size_bytes:,} bytes without a whole header",
                    repair="the file is cut or is a pointer to the real one: download it again",
                )
            digest.update(stream.read(length))
            start = 8 + length
        for offset in _offsets(start, size_bytes):
            stream.seek(offset)
            digest.update(stream.read(SAMPLE_BYTES))
    return digest.hexdigest()


def _offsets(start: int, end: int) -> Iterator[int]:
    """Yield evenly spaced offsets of samples, the first and the last bytes among them."""
    last = max(start, end - SAMPLE_BYTES)
    for number in range(SAMPLES_A_FILE):
        yield start + (last - start) * number // (SAMPLES_A_FILE - 1)
