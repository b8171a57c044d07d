"""HF datasets saved in a folder, divided into splits or not."""

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict

from datagen.prompts import PromptError
from tests.datagen.prompts.written import reading, talk

ROWS: list[dict[str, Any]] = [talk(f"q{at}", "a", id=f"c{at}") for at in range(4)]


def test_rows_are_read_through_the_datasets_own_order(tmp_path: Path) -> None:
    Dataset.from_list(ROWS).select([2, 0]).save_to_disk(tmp_path / "saved")
    conversations, _, stats = reading(tmp_path / "saved")
    assert [(item.source, item.conversation_id) for item in conversations] == [
        ("saved:1", "c2"),
        ("saved:2", "c0"),
    ]
    assert conversations[0].messages == tuple(ROWS[2]["messages"])
    assert stats.read == 2


def test_a_split_is_chosen_or_asked_for(tmp_path: Path) -> None:
    splits = {"train": Dataset.from_list(ROWS[:3]), "test": Dataset.from_list(ROWS[3:])}
    DatasetDict(splits).save_to_disk(tmp_path / "saved")
    conversations, _, _ = reading(tmp_path / "saved", split="test")
    assert [item.conversation_id for item in conversations] == ["c3"]
    for wrong in (None, "dev"):
        with pytest.raises(PromptError, match=rf"expected a split out of test, train, got {wrong or 'none'}"):
            reading(tmp_path / "saved", split=wrong)


def test_a_folder_that_is_broken_is_told(tmp_path: Path) -> None:
    Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved")
    for file in (tmp_path / "saved").glob("*.arrow"):
        file.unlink()
    with pytest.raises(PromptError, match="saved: cannot be opened"):
        reading(tmp_path / "saved")


def test_a_hub_id_is_opened_at_its_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub itself is out of a test's reach: what it would be asked for is not."""
    asked: list[tuple[str, str | None, str | None]] = []

    def load_dataset(path: str, *, revision: str | None, split: str | None) -> Dataset | DatasetDict:
        asked.append((path, revision, split))
        rows = Dataset.from_list(ROWS)
        return rows if split else DatasetDict({"train": rows})

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    conversations, _, _ = reading("hf://some/talks@v1.0", split="train[:4]")
    assert conversations[3].source == "hf://some/talks@v1.0:4"
    conversations, _, _ = reading("hf://some/talks")
    assert len(conversations) == 4
    assert asked == [("some/talks", "v1.0", "train[:4]"), ("some/talks", None, None)]


def test_a_hub_that_cannot_be_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(path: str, **_: object) -> Dataset:
        raise ConnectionError("no route")

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    with pytest.raises(PromptError, match="hf://some/talks: cannot be opened: no route"):
        reading("hf://some/talks")
