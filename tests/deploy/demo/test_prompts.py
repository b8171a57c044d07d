"""Reading an array of records that may end anywhere: what is whole is kept, what is not is counted."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.demo import prompts
from deploy.demo.prompts import Reading, keep_first, whole_records
from deploy.demo.registry import DemoError, Wheel

RECORDS = [
    {
        "id": "a_0",
        "conversations": [{"from": "human", "value": "Zwölf? 12 ]"}, {"from": "gpt", "value": '"12",'}],
    },
    {"id": "b_0", "conversations": []},
    {"id": "b_1", "conversations": [{"from": "gpt", "value": "[continued"}]},
    {
        "id": "c_0",
        "conversations": [{"from": "system", "value": "You are"}, {"from": "human", "value": "🙂"}],
    },
]
WHOLE = json.dumps(RECORDS, indent=2)


def read(text: str, piece_chars: int = 1 << 20) -> tuple[list[dict[str, object]], Reading]:
    reading = Reading()
    return list(whole_records(io.StringIO(text), reading, piece_chars)), reading


@settings(deadline=None, max_examples=60)
@given(piece_chars=st.integers(1, len(WHOLE)), end=st.integers(1, len(WHOLE)))
def test_whole_records_whatever_the_cut_and_the_pieces(piece_chars: int, end: int) -> None:
    got, reading = read(WHOLE[:end], piece_chars)
    assert got == RECORDS[: len(got)]
    assert reading.whole == len(got) == WHOLE[:end].count("\n  }")
    rest = WHOLE[:end].rpartition("\n  }")[2] if got else WHOLE[1:end]
    assert reading.cut_chars == (0 if rest.endswith("]") and len(got) == 4 else len(rest.lstrip(", \n")))


def test_kept_as_they_are_and_counted() -> None:
    sink = io.StringIO()
    reading = keep_first(io.StringIO(WHOLE[:-20]), sink, 3)
    assert [json.loads(line) for line in sink.getvalue().splitlines()] == RECORDS[:3]
    assert (reading.whole, reading.kept) == (3, 3)
    assert reading.opened_by == {"human": 1, "empty": 1, "gpt": 1}
    assert reading.cut_chars > 0
    assert str(reading).startswith("3 whole records, 1 cut off (")


def test_reads_on_behind_the_kept_ones_to_count() -> None:
    sink = io.StringIO()
    reading = keep_first(io.StringIO(WHOLE), sink, 1)
    assert (reading.whole, reading.kept, reading.cut_chars) == (4, 1, 0)
    assert len(sink.getvalue().splitlines()) == 1


@pytest.mark.parametrize("text", ["", "{}", '"['])
def test_not_an_array(text: str) -> None:
    with pytest.raises(DemoError, match="expected a JSON array of records"):
        read(text)


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small wheel in the cache of an empty working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prompts, "WHEEL", Wheel("small", "1", "not looked at once it is in the cache"))
    (tmp_path / "data" / "cache").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "data" / "cache" / "small-1.whl", "w") as archive:
        archive.writestr(prompts.MEMBER, WHOLE)


@pytest.mark.usefixtures("wheel")
def test_made_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(prompts, "RECORDS", 2)
    prompts.main()
    assert prompts.PROMPTS.read_text(encoding="utf-8").count("\n") == 2
    assert "kept the first 2, opened by: 1 human, 1 empty" in capsys.readouterr().out
    prompts.main()
    assert "already made" in capsys.readouterr().out


@pytest.mark.usefixtures("wheel")
def test_too_few_records_leave_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "RECORDS", 5)
    with pytest.raises(DemoError, match="expected at least 5 whole records, got 4"):
        prompts.main()
    assert not prompts.PROMPTS.exists()
