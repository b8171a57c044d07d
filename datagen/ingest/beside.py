"""What an export of Strata's leaves beside its files: the card, which sample each row is, and checksums.

They are looked for in the folders that were given and in those above them, where a format keeps its states in
a folder of their own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from datagen.errors import IngestError
from datagen.export.listed_files import SUMS
from datagen.ingest.sums import Sums, read_sums
from datagen.store.trainer_rows import ROWS
from datagen.wiring.cards import read_card
from schemas.card import CARD_FILE, Card
from schemas.problem import Problem


@dataclass(frozen=True)
class Beside:
    """The card, each sample's conversation by its id, and the files' checksums; empty without an export."""

    card: Card | None = None
    conversations: Mapping[str, str] = field(default_factory=dict)
    sums: Sums = field(default_factory=Sums)


def read_beside(paths: Sequence[Path]) -> Beside:
    """Read them; raises `ConfigError` or `RecordError` for a damaged card, `IngestError` for damaged rows."""
    card = _find(paths, CARD_FILE)
    rows = _find(paths, ROWS)
    sums = _find(paths, SUMS)
    return Beside(
        read_card(card) if card else None,
        dict(_rows(rows)) if rows else {},
        read_sums(sums) if sums else Sums(),
    )


def _find(paths: Sequence[Path], name: str) -> Path | None:
    for path in paths:
        folder = path.absolute() if path.is_dir() else path.absolute().parent
        for near in (folder, *list(folder.parents)[:2]):
            if (near / name).is_file():
                return near / name
    return None


def _rows(file: Path) -> Iterator[tuple[str, str]]:
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            sample_id, conversation_id = row["sample_id"], row["conversation_id"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _damaged(file, number) from error
        if not isinstance(sample_id, str) or not isinstance(conversation_id, str):
            raise _damaged(file, number)
        yield sample_id, conversation_id


def _damaged(file: Path, number: int) -> IngestError:
    message = "expected an object with sample_id and conversation_id, got something else"
    repair = "copy it again from the export, or remove it: conversations are then named after the files"
    problem = Problem(where=f"{file}:{number}", kind="rows", message=message, repair=repair)
    return IngestError("the list of rows beside the files is damaged", [problem])
