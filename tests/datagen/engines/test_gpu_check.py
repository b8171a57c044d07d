"""The script for CUDA machines, run at toy size on the CPU: it works, and it can fail."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from datagen.engines.batch import Padded
from tests.gpu import check, correctness, timing


def test_all_well_at_toy_size(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert correctness.check("cpu") == []
    assert timing.measure("cpu", tmp_path) == []
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = {line["name"] for line in lines}
    assert names == {"correctness", "bare model", "capture", "capture and store", "submit", "store"}
    assert list(tmp_path.iterdir()) == []


def test_finds_rows_of_another_token(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Padded.unpadded

    def shifted(self: Padded, hidden: Any) -> Any:
        return whole(self, hidden).roll(1, 0)

    monkeypatch.setattr(Padded, "unpadded", shifted)
    assert any("expected transformers' values" in finding for finding in correctness.check("cpu"))


@pytest.mark.parametrize("case", ["no cuda", "no package"])
def test_says_why_it_could_not_try(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["check.py"])
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    if case == "no package":
        monkeypatch.setitem(check.NEEDED, "no_such_package", "no-such-package")
    assert check.main() == 2
    said = capsys.readouterr().err
    assert ("no-such-package" if case == "no package" else "expected a CUDA device") in said
