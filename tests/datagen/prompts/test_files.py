"""Broken records in JSON: named, and the others read."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datagen.prompts import files
from datagen.prompts.files import Broken, file_records
from datagen.prompts.locate import Source
from tests.datagen.prompts.written import jsonl, reading, talk


def records(path: Path) -> list[tuple[str, Any]]:
    return list(file_records(Source(path.name, "json", str(path))))


def test_a_broken_line_stops_nothing(tmp_path: Path) -> None:
    good = json.dumps(talk("q", "a"))
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf"
        + b"\n".join(
            [
                good.encode(),
                b'{"messages": [',
                b"",
                b"[1, 2]",
                b'{"messages": "\xff"}',
                b'{"weight": NaN}',
                b"[" * 100_000,
                good.encode(),
            ]
        )
    )
    conversations, quarantined, stats = reading(path)
    assert [item.source for item in conversations] == ["a.jsonl:1", "a.jsonl:8"]
    assert [item.source for item in quarantined] == [f"a.jsonl:{line}" for line in (2, 4, 5, 6, 7)]
    assert {item.reason for item in quarantined} == {"unreadable_record"}
    assert "expected a JSON object, got list" in quarantined[1].detail
    assert stats.read == 7


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=30), max_size=3), max_size=6),
    st.sampled_from([None, 1, 4]),
    st.integers(1, 40),
)
def test_an_array_is_read_whatever_the_pieces(
    tmp_path_factory: pytest.TempPathFactory, values: list[dict[str, str]], indent: int | None, piece: int
) -> None:
    path = tmp_path_factory.mktemp("array") / "a.json"
    path.write_text(json.dumps(values, indent=indent), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "PIECE_CHARS", piece)
        assert records(path) == [(f"a.json:{at}", value) for at, value in enumerate(values, 1)]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 10_000), st.integers(1, 40))
def test_an_array_that_is_cut_gives_what_is_whole(
    tmp_path_factory: pytest.TempPathFactory, cut: int, piece: int
) -> None:
    values = [{"id": at, "text": "x" * at} for at in range(5)]
    text = json.dumps(values)
    text = text[: 1 + cut % (len(text) - 1)]
    path = tmp_path_factory.mktemp("array") / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "PIECE_CHARS", piece)
        *whole, (where, last) = records(path)
    assert [value for _, value in whole] == values[: len(whole)]
    assert len(whole) == text.count("}")
    assert where == f"a.json:{len(whole) + 1}"
    assert isinstance(last, Broken)
    assert f"nothing after record {len(whole)} of the array was read" in last.detail


def test_bytes_that_are_no_text_cost_one_record(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"id": "\xff", "messages": []}, {"id": "b", "prompt": "q", "response": "a"}]')
    conversations, quarantined, _ = reading(path)
    assert [item.conversation_id for item in conversations] == ["b"]
    assert [item.reason for item in quarantined] == ["empty"]


def test_a_json_file_of_lines_is_read_as_lines(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.json", [{"a": 1}, {"b": 2}])
    assert records(path) == [("a.json:1", {"a": 1}), ("a.json:2", {"b": 2})]


def test_what_follows_an_array_is_not_read_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"a": 1}]\n[{"b": 2}]')
    (_, first), (where, last) = records(path)
    assert first == {"a": 1}
    assert where == "a.json:2"
    assert isinstance(last, Broken)
    assert "expected the end of the file" in last.detail
