"""Open descriptors: bounded, shared, and never closed under a reader."""

import os
from pathlib import Path

import pytest

from datagen.store.descriptors import Descriptors


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    made = [tmp_path / str(number) for number in range(4)]
    for path in made:
        path.write_text(path.name)
    return [str(path) for path in made]


def test_a_path_is_opened_once(paths: list[str]) -> None:
    descriptors = Descriptors()
    with descriptors.reading(paths[0]) as first, descriptors.reading(paths[0]) as second:
        assert first == second
    with descriptors.reading(paths[0]) as again:
        assert again == first
    descriptors.close()


def test_the_longest_unused_is_closed_and_one_in_use_is_not(paths: list[str]) -> None:
    descriptors = Descriptors(limit=1)
    with descriptors.reading(paths[0]) as held:
        for path in paths[1:]:
            with descriptors.reading(path) as fd:
                assert os.pread(fd, 1, 0) == os.path.basename(path).encode()
        assert os.pread(held, 1, 0) == b"0"
    with descriptors.reading(paths[1]):
        pass
    assert len(descriptors) == 1
    descriptors.close()


def test_closing_waits_for_the_last_reader(paths: list[str]) -> None:
    descriptors = Descriptors()
    with descriptors.reading(paths[0]) as fd:
        descriptors.close()
        assert os.pread(fd, 1, 0) == b"0"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pread(fd, 1, 0)


def test_a_forgotten_path_is_opened_anew(paths: list[str]) -> None:
    descriptors = Descriptors()
    with descriptors.reading(paths[0]):
        pass
    os.replace(paths[1], paths[0])
    descriptors.forget(paths[0])
    with descriptors.reading(paths[0]) as fd:
        assert os.pread(fd, 1, 0) == b"1"
    descriptors.close()
