"""Reads a file of tensors without running a byte of it: safetensors, or torch's with `weights_only` alone.

torch's own files are pickles. `weights_only` rebuilds tensors, numbers, texts, lists and mappings of them,
and refuses everything else before it runs (source: torch, `_weights_only_unpickler.py`). Nothing is mapped
either: a file that its writer cuts while it is mapped kills the process that reads it.
"""

import errno
import gzip
import io
import os
import pickle
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import IO

import torch

from datagen.adapters.errors import ForeignFileError, check_is_file, refused, unreadable
from datagen.adapters.unmapped_tensors import UnplacedError, check_plain, safetensors_in, with_integers

SAFETENSORS = ".safetensors"
TORCH = (".pt", ".pth", ".ckpt", ".bin")
GZIP = ".gz"
_BEGINNINGS = (b"PK", b"\x80", b"\x1f\x8b")
"""Of a zip, of a pickle and of what gzip packed."""
MOST_PACKED = 64
"""How many times larger than its file a file may be when it is unpacked: states hardly pack at all."""
_SMALL_BYTES = 2**24
_LITTLE = b"little"
_BROKEN = (
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    AssertionError,
    zlib.error,
)
"""What torch and zlib raise of a file that was cut off or is none of theirs."""


def is_known(file: Path) -> bool:
    """Say whether a file's name is that of a file of tensors.

    >>> is_known(Path("data_0.ckpt.gz")), is_known(Path("notes.txt"))
    (True, False)
    """
    name = file.name.removesuffix(GZIP)
    return name.endswith(TORCH) or file.name.endswith(SAFETENSORS)


def load(file: Path, *, states: bool = True) -> object:
    """Return what a file holds: a mapping of tensors, or whatever `weights_only` lets torch rebuild.

    Without `states` the values of floating tensors may be any, and are not read where the file's form allows
    that. Raises `ForeignFileError` for a file that is not there, is cut off, or holds what would run.
    """
    if file.name.endswith(SAFETENSORS):
        return safetensors_in(file, states=states)
    check_is_file(file)
    try:
        if file.name.endswith(GZIP):
            with gzip.open(file) as stream:
                return _load_whole(file, io.BytesIO(_unpacked(file, stream)))
        is_stored = _is_stored(file)
        with open(file, "rb") as stream:
            return _load_stored(file, stream, states=states or not is_stored)
    except FileNotFoundError as error:
        message = "expected a file, got none of this name"
        raise refused(file, "file", message, "check how its path is written") from error
    except pickle.UnpicklingError as error:
        if (other := _of_another_kind(file)) is not None:
            raise other from error
        message = f"expected tensors, numbers, texts, lists and mappings only, got {met_in(error)}"
        repair = "nothing else is unpickled, for it could run anything; save its tensors alone"
        raise refused(file, "pickle", message, repair) from error
    except _BROKEN as error:
        # EINVAL is of a place before the beginning, to which a damaged archive's directory leads.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise unreadable(file, error) from error
        if (other := _of_another_kind(file)) is not None:
            raise other from error
        message = f"expected a whole file of torch.save, got {_first(error) or type(error).__name__}"
        raise refused(file, "damaged", message, "copy it again, or make it again: it was cut off") from error


def _load_stored(file: Path, stream: io.BufferedReader, *, states: bool) -> object:
    if states:
        return _load_whole(file, stream)
    try:
        return with_integers(file, _load_torch(stream, device="meta"))
    except (UnplacedError, NotImplementedError):  # of a torch that keeps no places, or of no plain tensor
        stream.seek(0)
        return _load_whole(file, stream)


def _of_another_kind(file: Path) -> ForeignFileError | None:
    """Return the error of a file that is empty, or begins as nothing does that torch writes."""
    try:
        with file.open("rb") as stream:
            begins = stream.read(2)
    except OSError:
        return None
    if not begins:
        return refused(file, "damaged", "expected a file of tensors, got an empty one", "make it again")
    if begins.startswith(_BEGINNINGS):
        return None
    repair = "give a file that safetensors or torch.save wrote: .safetensors, .pt, .ckpt, .ckpt.gz"
    return refused(file, "damaged", "expected a file of torch.save, got one of another kind", repair)


def _unpacked(file: Path, stream: gzip.GzipFile) -> bytes:
    most = _most_bytes(file)
    data = stream.read(most + 1)
    if len(data) > most:
        raise _too_large(file, most)
    return data


def _is_stored(file: Path) -> bool:
    """Say whether a file is a zip of which nothing is packed, as torch writes them: it has places to read at.

    Raises `ForeignFileError` for one whose members unpack to more than any states do.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            orders = [archive.read(one) for one in members if one.filename.endswith("/byteorder")]
    except (zipfile.BadZipFile, NotImplementedError):
        return False
    if sum(member.file_size for member in members) > (most := _most_bytes(file)):
        raise _too_large(file, most)
    return all(member.compress_type == zipfile.ZIP_STORED for member in members) and orders in ([], [_LITTLE])


def _most_bytes(file: Path) -> int:
    return file.stat().st_size * MOST_PACKED + _SMALL_BYTES


def _too_large(file: Path, most: int) -> ForeignFileError:
    message = f"expected at most {most:,} bytes when unpacked, got more"
    return refused(file, "damaged", message, "save its tensors again, without packing them")


def _load_whole(file: Path, stream: IO[bytes]) -> object:
    content = _load_torch(stream)
    check_plain(file, content)
    return content


def _load_torch(file: IO[bytes], device: str = "cpu") -> object:
    with warnings.catch_warnings():
        # Of another pickle protocol torch warns before it refuses what it cannot read.
        warnings.simplefilter("ignore")
        return torch.load(file, map_location=device, weights_only=True)


def _first(error: BaseException) -> str:
    """Return the first sentence of an error, as it stands in one of ours."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    return text.partition("\n")[0].partition(". ")[0].strip().rstrip(".")[:200]


def met_in(error: pickle.UnpicklingError) -> str:
    """Return what the restricted unpickler met, without the advice to load it all the same."""
    for line in str(error).splitlines():
        if "GLOBAL" in line or "opcode" in line or "Unsupported" in line:
            told = line.partition("WeightsUnpickler error: ")[2] or line
            return "a pickle of something else: " + told.strip().partition(". ")[0].rstrip(".")[:160]
    return "a pickle of something else, or a file that was cut off"
