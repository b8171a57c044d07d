"""What lies below a folder is found through links, and what cannot be looked into is told."""

import os
from pathlib import Path

import pytest

from datagen.adapters.folder_walk import files_below


def test_what_is_no_folder_is_found_once(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "data_0.pt").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "broken.pt").symlink_to(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe.pt")
    found, problems = files_below(tmp_path)
    assert sorted(found) == [tmp_path / "broken.pt", tmp_path / "pipe.pt", tmp_path / "rows" / "data_0.pt"]
    assert not problems


def test_a_folder_that_cannot_be_looked_into_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    look = os.scandir

    def scandir(path: str) -> object:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", path)
        return look(path)

    monkeypatch.setattr("os.scandir", scandir)
    found, (problem,) = files_below(tmp_path)
    assert found == []
    assert (problem.where, problem.severity) == (str(closed), "error")
    assert problem.message == "expected a folder that can be read, got: permission denied"
