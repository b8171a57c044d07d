"""What is made is there whole or not at all, whatever ends the maker."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from deploy.demo.whole import making

KILLED_HALF_WAY = """
import os, signal, sys
from pathlib import Path
from deploy.demo.whole import making

with making(Path(sys.argv[1])) as partial:
    partial.mkdir()
    (partial / "half").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_made_once(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "thing"
    with making(place) as partial:
        assert partial is not None
        assert not place.exists()
        partial.write_text("whole")
        assert not place.exists()
    assert place.read_text() == "whole"
    with making(place) as partial:
        assert partial is None
    assert place.read_text() == "whole"


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "thing"

    def half() -> None:
        with making(place) as partial:
            assert partial is not None
            partial.mkdir()
            (partial / "half").write_text("half")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        half()
    assert [path.name for path in tmp_path.iterdir()] == [".thing.lock"]


def test_a_kill_leaves_nothing_that_counts(tmp_path: Path) -> None:
    place = tmp_path / "thing"
    killed = subprocess.run([sys.executable, "-c", KILLED_HALF_WAY, str(place)], check=False)
    assert killed.returncode == -9
    assert not place.exists()
    with making(place) as partial:
        assert partial is not None
        assert not partial.exists()
        partial.mkdir()
        (partial / "whole").write_text("whole")
    assert [path.name for path in place.iterdir()] == ["whole"]


def test_a_second_maker_waits_and_finds_it_made(tmp_path: Path) -> None:
    place = tmp_path / "thing"
    found: list[Path | None] = []

    def second() -> None:
        with making(place) as partial:
            found.append(partial)
            if partial is not None:
                partial.write_text("second")

    thread = threading.Thread(target=second)
    with making(place) as partial:
        assert partial is not None
        partial.write_text("first")
        thread.start()
        thread.join(timeout=0.1)
        assert not found
    thread.join(timeout=60)
    assert found == [None]
    assert place.read_text() == "first"


def test_nothing_made_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), making(tmp_path / "thing"):
        pass
