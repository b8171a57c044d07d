"""Headers of a draft's checkpoint: whole, cut off, in several files, and of other things."""

import json
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from datagen.wiring.draft_files import INDEX, read_safetensors_names


def with_header(path: Path, header: object, rest: bytes = b"") -> Path:
    """Write a file with any header."""
    data = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(data)) + data + rest)
    return path


def test_names_and_shapes_of_a_file_and_of_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file(
        {"fc.weight": torch.zeros(2, 6), "d2t": torch.zeros(3, dtype=torch.int64)}, file, {"format": "pt"}
    )
    expected = {"fc.weight": (2, 6), "d2t": (3,)}
    assert read_safetensors_names(file) == (expected, ())
    assert read_safetensors_names(tmp_path) == (expected, ())


def test_an_index_is_followed(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        save_file({f"{name}.weight": torch.zeros(1)}, tmp_path / f"{name}.safetensors")
    index = {"weight_map": {"a.weight": "a.safetensors", "b.weight": "b.safetensors"}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    tensors, problems = read_safetensors_names(tmp_path)
    assert (list(tensors), problems) == (["a.weight", "b.weight"], ())


@pytest.mark.parametrize("name", ["gone.safetensors", "../a.safetensors"])
def test_a_file_of_the_index_that_is_not_there(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "draft"
    folder.mkdir()
    save_file({"a": torch.zeros(1)}, tmp_path / "a.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
    tensors, (problem,) = read_safetensors_names(folder)
    assert tensors == {}
    assert f"names {name!r}, which is not in the folder" in str(problem)


@pytest.mark.parametrize("index", ["", "[]", '{"weight_map": []}', '{"weight_map": 1}', "{}"])
def test_an_index_that_is_none(tmp_path: Path, index: str) -> None:
    (tmp_path / INDEX).write_text(index)
    tensors, (problem,) = read_safetensors_names(tmp_path)
    assert (tensors, problem.where) == ({}, INDEX)


def test_a_file_that_was_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(100)}, file)
    file.write_bytes(file.read_bytes()[:-1])
    tensors, (problem,) = read_safetensors_names(file)
    assert tensors == {}
    assert "cut off" in problem.message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        struct.pack("<Q", 2**60) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 2) + b"{x",
    ],
    ids=["empty", "short", "huge", "list", "no_json"],
)
def test_a_file_that_is_none(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(data)
    tensors, (problem,) = read_safetensors_names(file)
    assert tensors == {}
    assert "expected a safetensors file" in problem.message


def test_entries_without_a_shape_and_a_name_in_two_files(tmp_path: Path) -> None:
    with_header(tmp_path / "a.safetensors", {"x": {"shape": [1]}, "y": {"shape": [-1]}, "z": 1})
    with_header(tmp_path / "b.safetensors", {"x": {"shape": [1]}})
    tensors, problems = read_safetensors_names(tmp_path)
    assert tensors == {"x": (1,)}
    assert [one.where for one in problems] == ["a.safetensors", "a.safetensors", "b.safetensors"]


def test_nothing_there(tmp_path: Path) -> None:
    assert len(read_safetensors_names(tmp_path)[1]) == 1
    assert len(read_safetensors_names(tmp_path / "gone")[1]) == 1


@settings(max_examples=60, deadline=None)
@given(
    data=st.binary(max_size=64) | st.binary(max_size=40).map(lambda tail: struct.pack("<Q", len(tail)) + tail)
)
def test_no_bytes_are_too_strange(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "strange.safetensors"
    file.write_bytes(data)
    read_safetensors_names(file)
