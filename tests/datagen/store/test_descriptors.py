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


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_a_path_is_opened_once(paths: list[str]) -> None:
    descriptors = Descriptors()
    first = descriptors.open(paths[0])
    assert descriptors.open(paths[0]) is first
    fd = first.fd
    del first
    assert descriptors.open(paths[0]).fd == fd


def test_the_longest_unused_is_closed_and_one_in_use_is_not(paths: list[str]) -> None:
    descriptors = Descriptors(limit=2)
    held = descriptors.open(paths[0])
    given_up = descriptors.open(paths[1]).fd
    descriptors.open(paths[0])
    kept = descriptors.open(paths[2]).fd
    assert not is_open(given_up)
    last = descriptors.open(paths[3]).fd
    assert os.pread(held.fd, 1, 0) == b"0"
    assert is_open(kept)
    assert is_open(last)
    assert len(descriptors) == 2
    gone = held.fd
    del held
    assert not is_open(gone)


def test_closing_waits_for_the_last_reader(paths: list[str]) -> None:
    descriptors = Descriptors()
    file = descriptors.open(paths[0])
    descriptors.close()
    assert os.pread(file.fd, 1, 0) == b"0"
    fd = file.fd
    del file
    assert not is_open(fd)


def test_what_cannot_be_opened_is_not_kept(paths: list[str]) -> None:
    descriptors = Descriptors()
    with pytest.raises(FileNotFoundError):
        descriptors.open(f"{paths[0]}-none")
    assert len(descriptors) == 0


def test_a_forgotten_path_is_opened_anew(paths: list[str]) -> None:
    descriptors = Descriptors()
    descriptors.open(paths[0])
    os.replace(paths[1], paths[0])
    descriptors.forget(paths[0])
    assert os.pread(descriptors.open(paths[0]).fd, 1, 0) == b"1"
