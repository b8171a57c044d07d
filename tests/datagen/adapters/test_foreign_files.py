"""Other libraries' files as they come: whole ones into slots, all others refused by name, and nothing run."""

import errno
import gzip
import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from datagen.adapters.errors import ForeignFileError
from datagen.adapters.foreign_files import files_of, read_foreign, sample_of
from datagen.adapters.foreign_samples import ForeignSample
from datagen.adapters.safe_loading import load

T, K, H = 7, 4, 8
IDS = torch.arange(T)


def saved(folder: Path, content: object, name: str = "data_0.pt") -> ForeignSample:
    file = folder / name
    torch.save(content, file)
    return read_foreign(file)


def refusal(file: Path) -> str:
    with pytest.raises(ForeignFileError) as error:
        read_foreign(file)
    assert all(problem.where.startswith(str(file)) for problem in error.value.problems)
    return "; ".join(problem.message for problem in error.value.problems)


def states(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@settings(deadline=None, max_examples=20)
@given(
    n_tokens=st.integers(1, 9),
    n_slots=st.integers(1, 5),
    dtype=st.sampled_from([torch.bfloat16, torch.float16, torch.float32]),
)
def test_a_stack_gives_its_planes_bit_for_bit(
    n_tokens: int, n_slots: int, dtype: torch.dtype, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("stack") / "hs_0.safetensors"
    stack = states(n_tokens, n_slots, H, dtype=dtype)
    save_file({"hidden_states": stack, "token_ids": torch.arange(n_tokens)}, file)
    sample = read_foreign(file)
    assert [slot.name for slot in sample.slots] == [f"hidden_states[{k}]" for k in range(n_slots)]
    assert sample.token_ids is not None
    assert sample.token_ids.tolist() == list(range(n_tokens))
    for k, slot in enumerate(sample.slots):
        np.testing.assert_array_equal(slot.rows.astype(np.float32), stack[:, k].float().numpy())


def test_bfloat16_stays_bfloat16(tmp_path: Path) -> None:
    sample = saved(tmp_path, {"input_ids": IDS, "hidden_states": [states(T, H, dtype=torch.bfloat16)]})
    assert sample.slots[0].rows.dtype == ml_dtypes.bfloat16


def test_a_stack_that_lies_layer_by_layer(tmp_path: Path) -> None:
    sample = saved(tmp_path, {"input_ids": IDS, "hidden_states": states(K, T, H)})
    assert [slot.rows.shape for slot in sample.slots] == [(T, H)] * K


def test_what_transformers_returns(tmp_path: Path) -> None:
    """A tuple of `[1, T, H]`, and ids `[1, T]`."""
    sample = saved(
        tmp_path, {"input_ids": IDS[None], "hidden_states": tuple(states(1, T, H) for _ in range(K))}
    )
    assert [slot.rows.shape for slot in sample.slots] == [(T, H)] * K


def test_fp8_is_scaled_back(tmp_path: Path) -> None:
    """speculators' backend `fp8`: one scale a token for all layers."""
    stack = states(T, K, H) * 100
    scales = stack.abs().amax(dim=(1, 2), keepdim=True) / 448
    file = tmp_path / "hs_0.safetensors"
    eighth = (stack / scales).to(torch.float8_e4m3fn)
    save_file({"hidden_states": eighth, "hidden_states_scales": scales, "token_ids": IDS}, file)
    rows = read_foreign(file).slots[1].rows
    assert np.abs(rows - stack[:, 1].numpy()).max() < 20


def test_the_input_stands_before_the_target(tmp_path: Path) -> None:
    """SpecForge's `hidden_state` is the target's, though its loader renames `aux_hidden_state` to it."""
    content = {"input_ids": IDS, "hidden_state": states(1, T, H), "aux_hidden_state": states(1, T, 3 * H)}
    sample = saved(tmp_path, content, "data_0.ckpt")
    assert [(slot.name, slot.rows.shape) for slot in sample.slots] == [
        ("aux_hidden_state", (T, 3 * H)),
        ("hidden_state", (T, H)),
    ]
    assert sample.last == "final_normed"


@pytest.mark.parametrize(("prenorm", "last"), [(True, "final"), (False, "final_normed"), (None, None)])
def test_modelopt_says_of_its_last_state_whether_it_is_normed(
    prenorm: bool | None, last: str | None, tmp_path: Path
) -> None:
    content = {"input_ids": IDS, "hidden_states": states(T, H), "aux_hidden_states": states(T, 3 * H)}
    flag = {} if prenorm is None else {"hidden_states_prenorm": prenorm}
    assert saved(tmp_path, content | flag).last == last


class Trap:
    """What a pickle may do to whoever loads it."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (os.environ["STRATA_TRAP"],)


@pytest.mark.parametrize(
    "name", ["data_0.pt", "data_0.ckpt", "data_0.ckpt.gz", "plain.pt", "hs_0.safetensors"]
)
def test_nothing_of_a_file_is_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sprung = tmp_path / "sprung"
    monkeypatch.setenv("STRATA_TRAP", str(sprung))
    content = {"input_ids": IDS, "hidden_states": [states(T, H)], "more": Trap()}
    file = tmp_path / name
    if name == "plain.pt":
        file.write_bytes(pickle.dumps(Trap()))
    else:
        torch.save(content, file)
    if name.endswith(".gz"):
        file.write_bytes(gzip.compress(file.read_bytes()))
    told = refusal(file)
    assert not sprung.exists()
    if not name.endswith(".safetensors"):
        assert told.startswith("expected tensors, numbers, texts, lists and mappings only, got a pickle")
        pickle.loads(pickle.dumps(Trap()))  # The trap itself works.
        assert sprung.exists()


@pytest.mark.parametrize("name", ["data_0.pt", "data_0.ckpt.gz", "hs_0.safetensors"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_file_that_was_cut_is_refused_by_name(name: str, share: float, tmp_path: Path) -> None:
    file = tmp_path / name
    content = {"input_ids": IDS, "hidden_states": states(T, K, 256)}
    if name.endswith(".safetensors"):
        save_file(content, file)
    else:
        torch.save(content, file)
    if name.endswith(".gz"):
        file.write_bytes(gzip.compress(file.read_bytes()))
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    assert refusal(file).startswith("expected ")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"d2t": IDS}, "got 'd2t'"),
        (
            {"input_ids": IDS, "hidden_states": IDS},
            "states [T, H] of a floating dtype, got int64 [7]",
        ),
        ({"input_ids": IDS, "hidden_states": "none"}, "got str"),
        ({"input_ids": IDS, "hidden_states": [states(T, H), 3]}, "got int"),
        ({"input_ids": IDS, "hidden_states": states(2, 2, T, H)}, "got float32 [2, 2, 7, 8]"),
        ({"input_ids": IDS, "hidden_states": [states(0, H)]}, "got a tensor of shape (0, 8)"),
        (
            {"input_ids": states(T), "hidden_states": [states(T, H)]},
            "token ids [T], got float32 [7]",
        ),
        ({"input_ids": IDS[None].repeat(2, 1), "hidden_states": [states(T, H)]}, "got int64 [2, 7]"),
        ("a text", "got str"),
        ([], "got list"),
        (None, "got NoneType"),
    ],
)
def test_what_is_no_hidden_states_is_refused_by_name(content: object, told: str, tmp_path: Path) -> None:
    file = tmp_path / "data_0.pt"
    torch.save(content, file)
    assert told in refusal(file)


@pytest.mark.parametrize("states", [True, False])
@pytest.mark.parametrize(
    ("ids", "told"),
    [
        (IDS.to_sparse(), "got a sparse_coo one on cpu"),
        (IDS.to("meta"), "got a strided one on meta"),
    ],
)
def test_a_tensor_that_is_no_plain_one_is_refused(
    ids: torch.Tensor, told: str, states: bool, tmp_path: Path
) -> None:
    file = tmp_path / "data_0.pt"
    torch.save({"hidden_states": [torch.zeros(T, H)], "input_ids": ids}, file)
    with pytest.raises(ForeignFileError, match=f"expected plain tensors with values, {told}"):
        load(file, states=states)


@pytest.mark.parametrize("name", ["data_0.pt", "hs_0.safetensors"])
def test_what_is_no_file_is_not_opened(name: str, tmp_path: Path) -> None:
    """A pipe would be waited for, without an end."""
    os.mkfifo(tmp_path / name)
    assert refusal(tmp_path / name) == "expected a file, got a folder or a pipe of this name"
    (tmp_path / "broken.pt").symlink_to(tmp_path / "none")
    assert refusal(tmp_path / "broken.pt") == "expected a file, got none of this name"


@pytest.mark.parametrize("name", ["data_0.pt", "hs_0.safetensors"])
def test_a_file_that_may_not_be_read_is_not_called_cut_off(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / name
    file.write_bytes(b"PK")

    def denied(*_given: object, **_more: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(file))

    monkeypatch.setattr("builtins.open", denied)
    monkeypatch.setattr("zipfile.ZipFile", denied)
    assert refusal(file) == "expected a file that can be read, got: permission denied"


def test_without_states_floats_are_shapes_and_integers_are_read(tmp_path: Path) -> None:
    mask = torch.tensor([[0, 1] * T])[:, :T]  # a view, of a stride
    content = {"input_ids": IDS, "loss_mask": mask, "hidden_states": (states(T, H), states(T, H).half())}
    torch.save(content, tmp_path / "data_0.pt")
    save_file({"token_ids": IDS, "hidden_states": states(T, K, H)}, tmp_path / "hs_0.safetensors")
    found: Any = load(tmp_path / "data_0.pt", states=False)
    assert found["input_ids"].tolist() == IDS.tolist()
    assert found["loss_mask"].tolist() == mask.tolist()
    assert [(slot.dtype, slot.shape) for slot in found["hidden_states"]] == [
        (torch.float32, (T, H)),
        (torch.float16, (T, H)),
    ]
    found = load(tmp_path / "hs_0.safetensors", states=False)
    assert (found["token_ids"].tolist(), found["hidden_states"].shape) == (IDS.tolist(), (T, K, H))


def test_every_problem_of_a_file_at_once(tmp_path: Path) -> None:
    file = tmp_path / "data_0.pt"
    torch.save({"input_ids": states(T), "hidden_states": [states(T), 3]}, file)
    with pytest.raises(ForeignFileError) as error:
        read_foreign(file)
    assert [problem.where.rpartition(": ")[2] for problem in error.value.problems] == [
        "input_ids",
        "hidden_states[0]",
        "hidden_states[1]",
    ]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("empty.pt", b"", "expected a file of tensors, got an empty one"),
        ("readme.txt", b"eagle", "expected a file of torch.save, got one of another kind"),
        ("data.ckpt", b"This is text", "expected a file of torch.save, got one of another kind"),
    ],
)
def test_what_is_no_file_of_tensors_is_not_called_cut_off(
    name: str, content: bytes, told: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    said = refusal(tmp_path / name)
    assert told in said
    assert "cut off" not in said
    assert "Error" not in said


def test_a_folder_gives_its_files_by_number(tmp_path: Path) -> None:
    for name in ("rows_0-2000/data_10.ckpt", "rows_0-2000/data_2.ckpt.gz", "x.safetensors", "log.txt"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.touch()
    files, problems = files_of([tmp_path])
    assert [file.name for file in files] == ["data_2.ckpt.gz", "data_10.ckpt", "x.safetensors"]
    assert not problems
    elsewhere = tmp_path / "elsewhere" / "rows_2000-4000"
    (tmp_path / "linked").mkdir()
    elsewhere.mkdir(parents=True)
    (elsewhere / "data_2000.ckpt").touch()
    (elsewhere / "again").symlink_to(elsewhere)
    (tmp_path / "linked" / "rows").symlink_to(elsewhere)
    assert files_of([tmp_path / "linked"]) == ([tmp_path / "linked" / "rows" / "data_2000.ckpt"], [])
    (tmp_path / "empty").mkdir()
    assert "got a folder of none" in files_of([tmp_path / "empty"])[1][0].message


def test_what_unpacks_to_far_more_than_states_do_is_refused(tmp_path: Path) -> None:
    content = io.BytesIO()
    torch.save({"input_ids": IDS, "hidden_states": [torch.zeros(T, 4_000_000)]}, content)
    packed = tmp_path / "data_0.ckpt.gz"
    packed.write_bytes(gzip.compress(content.getvalue(), 1))
    assert "bytes when unpacked, got more" in refusal(packed)
    content.seek(0)
    again = tmp_path / "data_0.pt"
    with zipfile.ZipFile(content) as inside, zipfile.ZipFile(again, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in inside.namelist():
            archive.writestr(name, inside.read(name))
    assert "bytes when unpacked, got more" in refusal(again)


def test_an_archive_that_somebody_packed_again_is_not_read_as_it_lies(tmp_path: Path) -> None:
    content = io.BytesIO()
    wanted = states(T, H)
    filler = torch.randint(0, 255, (200_000,), dtype=torch.uint8)
    torch.save({"input_ids": IDS, "hidden_states": [wanted], "filler": filler}, content)
    packed = tmp_path / "data_0.pt"
    with zipfile.ZipFile(content) as inside, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in inside.namelist():
            archive.writestr(name, inside.read(name))
    sample = sample_of(packed, load(packed, states=False), views=True)
    np.testing.assert_array_equal(sample.slots[0].rows, wanted.numpy())
