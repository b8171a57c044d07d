"""Which files are read, in which order, and what is said when they cannot be."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from datagen.prompts import PromptError, PromptSettings, locate
from tests.datagen.prompts.written import jsonl, making, reading, talk


def names(*paths: Path | str) -> list[str]:
    return [source.name for source in locate(PromptSettings(path=tuple(map(str, paths))))]


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / ".cache").mkdir()
    for name in ("b.jsonl", "a.json", "deep/c.ndjson", "notes.txt", ".cache/d.jsonl"):
        jsonl(tmp_path / name, [talk("q", "a", id=name)])
    assert names(tmp_path) == ["a.json", "b.jsonl", "c.ndjson"]
    conversations, _, _ = reading(tmp_path)
    assert [item.source for item in conversations] == ["a.json:1", "b.jsonl:1", "c.ndjson:1"]


def test_a_glob_a_list_and_a_file_named_twice(tmp_path: Path) -> None:
    for name in ("a1.jsonl", "a2.jsonl", "b.jsonl"):
        jsonl(tmp_path / name, [talk("q", "a")])
    assert names(tmp_path / "b.jsonl", tmp_path / "*.jsonl") == ["b.jsonl", "a1.jsonl", "a2.jsonl"]


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        jsonl(tmp_path / folder / "a.jsonl", [talk("q", "a")])
    assert names(tmp_path) == [str(tmp_path / "x/a.jsonl"), str(tmp_path / "y/a.jsonl")]


def test_every_path_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.csv").write_text("q,a\n")
    (tmp_path / "a.parquet").write_text("no parquet")
    (tmp_path / "a.json").write_text('"a string"')
    paths = ["gone.jsonl", "empty", "a.csv", "a.parquet", "a.json"]
    with pytest.raises(PromptError) as caught:
        locate(PromptSettings(path=("hf://no-owner", *(str(tmp_path / path) for path in paths))))
    assert [problem.kind for problem in caught.value.problems] == [
        "hub",
        "missing",
        "empty",
        "suffix",
        "unreadable",
        "json",
    ]
    assert "expected a file ending in .jsonl, .ndjson, .json, .parquet, got '.csv'" in str(caught.value)


def test_a_missing_path_is_told_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="got nothing there"):
        reading(tmp_path / "gone.jsonl")


@pytest.mark.parametrize("content", ["", "\n\n", "[]"])
def test_no_records_at_all_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(PromptError, match=r"a\.json: expected records, got none"):
        reading(tmp_path / "a.json")


def test_a_limit_counts_records_over_all_files(tmp_path: Path) -> None:
    jsonl(tmp_path / "a.jsonl", [talk("q", "a"), "broken"])
    jsonl(tmp_path / "b.jsonl", [talk("q", "a"), talk("q", "a")])
    conversations, quarantined, stats = reading(tmp_path, limit=3)
    assert stats.read == 3
    assert [item.source for item in conversations] == ["a.jsonl:1", "b.jsonl:1"]
    assert [item.source for item in quarantined] == ["a.jsonl:2"]


def test_settings_are_closed_and_frozen() -> None:
    settings = PromptSettings(path="a")
    with pytest.raises(ValidationError):
        settings.limit = 3  # type: ignore[misc]
    with pytest.raises(ValidationError):
        PromptSettings(path="a", max_token=3)  # type: ignore[call-arg]


def test_parquet_rows_are_conversations(tmp_path: Path) -> None:
    records = [talk(f"q{at}", f"a{at}", id=at) for at in range(5)]
    records[2]["messages"][0]["name"] = "Ann"
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet", row_group_size=2)
    conversations, quarantined, _ = reading(tmp_path)
    assert not quarantined
    assert [item.source for item in conversations] == [f"a.parquet:{row}" for row in range(1, 6)]
    assert conversations[1].conversation_id == "1"
    assert conversations[1].messages == tuple(records[1]["messages"])
    assert conversations[2].messages is not None
    assert conversations[2].messages[0]["name"] == "Ann"


def test_a_broken_row_group_is_named_and_the_next_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = [{"prompt": f"q{at}" * 50, "response": "a"} for at in range(6)]
    pq.write_table(
        pa.Table.from_pylist(rows), path, row_group_size=2, compression="zstd", use_dictionary=False
    )
    column = pq.read_metadata(path).row_group(1).column(0)
    damaged = bytearray(path.read_bytes())
    start = column.data_page_offset
    damaged[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(damaged)
    conversations, quarantined, stats = reading(path)
    assert [item.source for item in conversations] == [f"a.parquet:{row}" for row in (1, 2, 5, 6)]
    (broken,) = quarantined
    assert broken.source == "a.parquet:3"
    assert "rows 3 to 4 of row group 1 were not read" in broken.detail
    assert stats.read == 5


def test_token_records_need_no_template_and_messages_do(tmp_path: Path) -> None:
    tokens = {"id": "t", "input_ids": [5, 6, 7], "loss_mask": [0, 1, 1]}
    prompts, _, _ = making(jsonl(tmp_path / "a.jsonl", [tokens]))
    assert prompts[0].input_ids.tolist() == [5, 6, 7]
    assert prompts[0].text is None
    with pytest.raises(PromptError, match="no chat template to render them"):
        making(jsonl(tmp_path / "b.jsonl", [talk("q", "a")]))
