"""Records out of JSON Lines, JSON arrays and Parquet files, streamed; a broken one does not stop the rest."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from datagen.prompts.locate import Source

PIECE_CHARS = 1 << 20
BATCH_ROWS = 1024


@dataclass(frozen=True)
class Broken:
    """A record, or a stretch of records, that cannot be read; `detail` says how much is lost with it."""

    detail: str


Record = dict[str, Any]
Located = tuple[str, Record | Broken]
"""Where it stands (`prompts.jsonl:17`, counted from 1), and what stands there."""


def file_records(source: Source) -> Iterator[Located]:
    """Yield the records of a `jsonl`, `json` or `parquet` source; raises `OSError` when it cannot be read."""
    if source.kind == "parquet":
        yield from _parquet_records(source)
    elif source.kind == "json" and _opens_array(source.path):
        yield from _array_records(source)
    else:
        yield from _line_records(source)


def parsed(text: str) -> Any:
    """Return the value of a JSON text; raises `ValueError` also for NaN, Infinity and too deep a nesting."""
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _checked(value: Any) -> Record | Broken:
    if isinstance(value, dict):
        return value
    return Broken(f"expected a JSON object, got {type(value).__name__}")


def _line_records(source: Source) -> Iterator[Located]:
    with open(source.path, "rb") as file:
        for number, raw in enumerate(file, 1):
            line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            if not line.strip():
                continue
            try:
                yield f"{source.name}:{number}", _checked(parsed(line.decode("utf-8")))
            except ValueError as error:
                yield f"{source.name}:{number}", Broken(f"no JSON: {error}")


def _opens_array(path: str) -> bool:
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        return file.read(4096).lstrip().startswith("[")


def _array_records(source: Source) -> Iterator[Located]:
    """Yield the records of a JSON array, reading on as needed.

    An array has no place to take up reading again: what follows a broken record is lost, and said to be.
    """
    with open(source.path, encoding="utf-8-sig", errors="surrogateescape") as file:
        array = _Array(file)
        number = 0
        while True:
            number += 1
            where = f"{source.name}:{number}"
            try:
                value = array.next()
            except StopIteration:
                return
            except (ValueError, RecursionError) as error:
                detail = (
                    f"no JSON from here on ({error}): nothing after record {number - 1} of the array was read"
                )
                yield where, Broken(detail)
                return
            yield where, _checked(value)


class _Array:
    """The text of a JSON array, and how far it was read."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text = ""
        self._at = 0
        self._fill(PIECE_CHARS)
        self._skip(" \t\r\n[", once="[")

    def next(self) -> Any:
        """Return the next value; raises `StopIteration` at the end, `ValueError` for what is broken."""
        self._skip(" \t\r\n,", once=",")
        if self._text[self._at : self._at + 1] == "]":
            self._at += 1
            self._skip(" \t\r\n", once="")
            if self._at < len(self._text):
                raise ValueError(f"expected the end of the file, got {self._text[self._at :][:20]!r}")
            raise StopIteration
        piece = PIECE_CHARS
        while True:
            try:
                value, self._at = _DECODER.raw_decode(self._text, self._at)
                return value
            except json.JSONDecodeError:
                if not self._fill(piece):
                    raise
                piece *= 2

    def _fill(self, chars: int) -> bool:
        more = self._file.read(chars)
        self._text, self._at = self._text[self._at :] + more, 0
        return bool(more)

    def _skip(self, chars: str, once: str) -> None:
        """Step over white space, and over the character `once` a single time."""
        seen = False
        while True:
            if self._at == len(self._text) and not self._fill(PIECE_CHARS):
                return
            char = self._text[self._at]
            if char not in chars or (char == once and seen):
                return
            seen = seen or char == once
            self._at += 1


def _parquet_records(source: Source) -> Iterator[Located]:
    with pq.ParquetFile(source.path) as file:
        row = 0
        for group in range(file.num_row_groups):
            behind = row + file.metadata.row_group(group).num_rows
            try:
                for batch in file.iter_batches(batch_size=BATCH_ROWS, row_groups=[group]):
                    for record in batch.to_pylist():
                        row += 1
                        yield f"{source.name}:{row}", record
            except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
                lost = f"rows {row + 1} to {behind} of row group {group} were not read: {error}"
                yield f"{source.name}:{row + 1}", Broken(lost)
                row = behind
