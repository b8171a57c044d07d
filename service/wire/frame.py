"""The frame of a body: the safetensors header that says what its bytes are, built, parsed and believed only
when it says all of them.

A body is 8 bytes (little-endian: the length of the JSON), the JSON, padded with spaces so that data starts at
a multiple of 8, and the entries' bytes end to end. Larger items stand first, so every entry is aligned to its
own. `__metadata__` carries `crc32c`: JSON of each entry's checksum over exactly the bytes sent.
Source of the format: github.com/huggingface/safetensors, README, "Format".
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from schemas.errors import RecordError
from schemas.problem import Problem
from schemas.schema import ITEM_BYTES
from service.wire.names import crc32c_text

PREFIX_BYTES = 8
MAX_HEAD_BYTES = 16 * 2**20
"""A head says a few names; what is longer is no body of ours, and nothing is allocated for it."""

WIRE_DTYPES: Mapping[str, str] = {
    "bfloat16": "BF16",
    "float16": "F16",
    "float32": "F32",
    "int32": "I32",
    "uint8": "U8",
    "int64": "I64",
}
_OUR_DTYPES = {wire: ours for ours, wire in WIRE_DTYPES.items()}
_METADATA = "__metadata__"
_CRC32C = "crc32c"


class Entry(NamedTuple):
    """One named array of a body: its dtype in the schema's words and its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Frame:
    """What a body is made of: `head`, then the bytes of `entries` end to end.

    `metadata` is that of the header, `crc32c` left out: it is `checksums`, one an entry.
    """

    entries: tuple[Entry, ...]
    metadata: Mapping[str, str]
    checksums: Mapping[str, int]
    head: bytes

    @property
    def size(self) -> int:
        """Bytes of the whole body."""
        return len(self.head) + sum(entry.n_bytes for entry in self.entries)

    def starts(self) -> tuple[int, ...]:
        """Return where each entry's bytes start in the body."""
        found, at = [], len(self.head)
        for entry in self.entries:
            found.append(at)
            at += entry.n_bytes
        return tuple(found)


def aligned(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries in the order in which a body holds them: larger items first, else as given."""
    return tuple(sorted(entries, key=lambda entry: -ITEM_BYTES[entry.dtype]))


def build_frame(entries: Iterable[Entry], checksums: Mapping[str, int], metadata: Mapping[str, str]) -> Frame:
    """Return the frame of entries with the crc32c of each; they are put in order by `aligned`.

    Raises `ValueError` when two have one name.
    """
    placed = aligned(entries)
    header: dict[str, Any] = {
        _METADATA: {
            **metadata,
            _CRC32C: json.dumps({entry.name: crc32c_text(checksums[entry.name]) for entry in placed}),
        }
    }
    at = 0
    for entry in placed:
        if entry.name in header:
            raise ValueError(f"expected each name once, got {entry.name!r} twice")
        end = at + entry.n_bytes
        dtype = WIRE_DTYPES[entry.dtype]
        header[entry.name] = {"dtype": dtype, "shape": entry.shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % PREFIX_BYTES)
    head = len(text).to_bytes(PREFIX_BYTES, "little") + text
    return Frame(placed, dict(metadata), {entry.name: checksums[entry.name] for entry in placed}, head)


def head_bytes(prefix: bytes) -> int:
    """Return how many bytes the head takes, from the first 8 of a body.

    Raises `RecordError` when no head of ours has that length.
    """
    length = int.from_bytes(prefix[:PREFIX_BYTES], "little")
    if len(prefix) < PREFIX_BYTES or not 2 <= length <= MAX_HEAD_BYTES:
        message = f"expected a header of 2 to {MAX_HEAD_BYTES} bytes, got {length} by {prefix[:8]!r}"
        raise RecordError("not a safetensors body", [_problem("length", message)])
    return PREFIX_BYTES + length


def parse_frame(head: bytes) -> Frame:
    """Read a body's head, all `head_bytes` of it.

    Raises `RecordError` with every problem: offsets that leave a hole, overlap or contradict the shape, an
    unknown dtype, a name given twice, an entry without checksum or a checksum without entry.
    """
    expected = head_bytes(head[:PREFIX_BYTES])
    if len(head) != expected:
        raise RecordError(
            "not a safetensors body", [_problem("length", f"expected {expected} bytes, got {len(head)}")]
        )
    try:
        header = json.loads(head[PREFIX_BYTES:], object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise RecordError("not a safetensors body", [_problem("json", f"expected JSON: {error}")]) from error
    if not isinstance(header, dict):
        raise RecordError("not a safetensors body", [_problem("json", f"expected an object, got {header}")])
    problems: list[Problem] = []
    metadata = _metadata_from(header.pop(_METADATA, {}), problems)
    entries = _entries_from(header, problems)
    checksums = _checksums_from(metadata.pop(_CRC32C, "{}"), problems)
    for name in sorted({entry.name for entry in entries} ^ checksums.keys()):
        problems.append(_problem(name, "expected an entry and its crc32c, got only one of them"))
    if problems:
        raise RecordError("the safetensors header contradicts itself", problems)
    return Frame(entries, metadata, checksums, bytes(head))


def _entries_from(header: dict[str, Any], problems: list[Problem]) -> tuple[Entry, ...]:
    placed = []
    for name, value in header.items():
        found = _entry_from(name, value)
        if isinstance(found, Problem):
            problems.append(found)
        else:
            placed.append(found)
    placed.sort(key=lambda item: (item[1], item[2]))
    at = 0
    for entry, start, end in placed:
        if (start, end) != (at, at + entry.n_bytes):
            message = f"expected bytes {at} to {at + entry.n_bytes}, got {start} to {end}"
            problems.append(_problem(entry.name, message))
        at = end
    return tuple(entry for entry, _, _ in placed)


def _entry_from(name: str, value: Any) -> tuple[Entry, int, int] | Problem:
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        return _problem(name, f"expected dtype, shape and data_offsets, got {str(value)[:80]}")
    dtype = _OUR_DTYPES.get(value["dtype"]) if isinstance(value["dtype"], str) else None
    if dtype is None:
        return _problem(name, f"expected one of {', '.join(_OUR_DTYPES)}, got {str(value['dtype'])[:80]}")
    shape, offsets = value["shape"], value["data_offsets"]
    if not (_counts(shape) and _counts(offsets) and len(offsets) == 2):
        return _problem(name, f"expected lengths and two offsets, got {str((shape, offsets))[:80]}")
    return Entry(name, dtype, tuple(shape)), offsets[0], offsets[1]


def _counts(values: Any) -> bool:
    """Whether `values` is a list of whole numbers that a file can have (JSON's `true` is none)."""
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**48 for value in values)


def _metadata_from(value: Any, problems: list[Problem]) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        return dict(value)
    problems.append(_problem(_METADATA, f"expected texts by name, got {str(value)[:80]}"))
    return {}


def _checksums_from(text: str, problems: list[Problem]) -> dict[str, int]:
    try:
        values = json.loads(text, object_pairs_hook=_each_once)
        checksums = {name: int(value, 16) for name, value in values.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        checksums = {"": -1}
    if all(0 <= value < 2**32 for value in checksums.values()):
        return checksums
    problems.append(_problem(_CRC32C, f"expected JSON of 0x........ by name, got {text[:80]!r}"))
    return {}


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found


def _problem(where: str, message: str) -> Problem:
    return Problem(where=where, kind="frame", message=message, repair="ask again, or report the server")
