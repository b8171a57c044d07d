"""What can be wrong with a file of states, each done to one, and what is to be told of it."""

import gzip
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Content = dict[str, Any]


class Surprise:
    """What must not run."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch surprise",)


def change(file: Path, act: Callable[[Content], object]) -> None:
    content = torch.load(file, weights_only=True)
    torch.save(act(content) or content, file)


def with_nan(content: Content) -> None:
    content["hidden_states"][1][3, 2] = float("nan")


def with_inf(content: Content) -> None:
    content["hidden_states"][3][0, 0] = float("-inf")


def with_zeros(content: Content) -> None:
    content["hidden_states"][2][5] = 0


def with_a_short_slot(content: Content) -> None:
    content["hidden_states"][2] = content["hidden_states"][2][:-1].clone()


def with_a_slot_less(content: Content) -> None:
    del content["hidden_states"][0]


def with_a_wider_slot(content: Content) -> None:
    content["hidden_states"][0] = torch.zeros(len(content["input_ids"]), 9, dtype=torch.bfloat16)


def in_another_dtype(content: Content) -> None:
    content["hidden_states"] = [slot.float() for slot in content["hidden_states"]]


def in_float64(content: Content) -> None:
    content["hidden_states"] = [slot.double() for slot in content["hidden_states"]]


def with_a_short_mask(content: Content) -> None:
    content["loss_mask"] = content["loss_mask"][1:].clone()


def with_a_mask_of_twos(content: Content) -> None:
    content["loss_mask"][0] = 2


def with_a_mask_of_floats(content: Content) -> None:
    content["loss_mask"] = content["loss_mask"].float()


def without_a_mask(content: Content) -> None:
    del content["loss_mask"]


def without_ids(content: Content) -> None:
    del content["input_ids"]


def with_an_unknown_token(content: Content) -> None:
    content["input_ids"][4] = 1000


def with_a_negative_token(content: Content) -> None:
    content["input_ids"][4] = -1


def of_another_library(content: Content) -> Content:
    states = content.pop("hidden_states")
    return {**content, "hidden_states": states[-1], "aux_hidden_states": torch.cat(states[:-1], dim=-1)}


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def surprise(file: Path) -> None:
    torch.save({"input_ids": torch.arange(3), "hidden_states": [Surprise()]}, file)


def bare_pickle(file: Path) -> None:
    file.write_bytes(pickle.dumps(Surprise()))


def text(file: Path) -> None:
    file.write_text("not found")


WRONG: dict[Callable[[Content], object], str] = {
    with_nan: "non_finite: layer5: expected finite values, got NaN or Inf at 1 tokens: 3",
    with_inf: "non_finite: final: expected finite values, got NaN or Inf at 1 tokens: 0",
    with_zeros: "wrong_content: layer6: expected states, got zeros at 1 of {n} tokens, first at 5",
    with_a_short_slot: "wrong_content: hidden_states[2]: expected a state for each of {n} tokens, got ",
    with_a_slot_less: "wrong_content: slots: expected 4 slots of bfloat16 [T, 8] as most files have, got 3",
    with_a_wider_slot: "wrong_content: hidden_states[0]: expected the target's width 8, got 9",
    in_another_dtype: "wrong_content: slots: expected 4 slots of bfloat16 [T, 8] as most files have, got 4",
    in_float64: "wrong_content: hidden_states[0]: expected bfloat16, float16, float32, got float64",
    with_a_short_mask: "wrong_content: loss_mask: expected one value for each of {n} tokens, got [",
    with_a_mask_of_twos: "wrong_content: loss_mask: expected 0 and 1, got 2",
    with_a_mask_of_floats: "wrong_content: {file}: expected integers [T], got float32 [{n}]",
    without_a_mask: "wrong_content: loss_mask: expected a loss mask, got none (give --masks ones",
    without_ids: "wrong_content: {file}: expected input_ids beside the states, got none",
    with_an_unknown_token: "token_out_of_vocabulary: input_ids: expected ids from 0 to 999, the target's",
    with_a_negative_token: "token_out_of_vocabulary: input_ids: expected ids from 0 to 999, the target's",
    of_another_library: "unreadable_record: {file}: expected a file of speculators-v1",
}
UNREADABLE = (cut, empty, surprise, bare_pickle, text)


def padded(file: Path, ids: list[int], n_pads: int) -> None:
    """Write a sample as SpecForge's collator pads it."""
    length = len(ids) + n_pads
    states = torch.randn(1, length, 4 * 8, generator=torch.Generator().manual_seed(len(ids))).bfloat16()
    content = {
        "input_ids": torch.tensor(ids + [0] * n_pads),
        "loss_mask": torch.tensor([0, 1] * (len(ids) // 2) + [0] * (len(ids) % 2 + n_pads)),
        "aux_hidden_state": states[..., : 3 * 8],
        "hidden_state": states[..., 3 * 8 :],
    }
    data = io.BytesIO()
    torch.save(content, data)
    file.write_bytes(gzip.compress(data.getvalue()) if file.suffix == ".gz" else data.getvalue())
