"""What other libraries read and write are files of this machine: a URL is no folder called `s3:`."""

from pathlib import Path

import pytest

from datagen.commands import check, export, identify, ingest, replay
from schemas.command import Command, guarded

URL = "s3://bucket/somewhere"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (export.command, ["--dataset", "data/demo", "--format", "speculators", "--out", URL]),
        (identify.command, [URL, "--target", "model"]),
        (ingest.command, ["--format", "speculators", URL, "--dataset", "data/demo", "--target", "model"]),
        (replay.command, ["--dataset", "data/demo", "--draft", URL, "--target", "model"]),
        (check.command, ["--dataset", "data/demo", "--card", URL, "--server", "sglang"]),
    ],
    ids=["export", "identify", "ingest", "replay", "check"],
)
def test_a_url_is_refused_where_a_file_is_meant(
    command: Command,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert guarded(command, words) == 2
    assert f"expected a file or a folder of this machine, got '{URL}'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
