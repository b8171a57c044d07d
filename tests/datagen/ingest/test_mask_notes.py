"""Masks of other samples of the same length are told where a template says where spans begin."""

import numpy as np
import pytest

from datagen.ingest.mask_notes import Masked, begins_of, mask_notes

TEMPLATE = [7, 8, 9]


def chat(number: int, n_turns: int = 1) -> tuple[list[int], list[int]]:
    """Return a conversation's ids and mask: questions and answers of its own lengths, all of 60 tokens."""
    rng = np.random.default_rng(number)
    ids, mask = list[int](), list[int]()
    for _ in range(n_turns):
        question, answer = (rng.integers(10, 1000, int(rng.integers(3, 9))).tolist() for _ in range(2))
        ids += [*question, *TEMPLATE, *answer]
        mask += [0] * (len(question) + 3) + [1] * len(answer)
    filler = 60 - len(ids)
    return ids + rng.integers(10, 1000, filler).tolist(), mask + [0] * filler


def masked(ids: list[int], mask: list[int], name: str) -> Masked:
    whole = np.array(mask, np.uint8)
    return Masked(name, int(whole.sum()), begins_of(np.array(ids, np.int64), whole))


def test_a_mask_of_another_sample_is_named() -> None:
    chats = [chat(number, 1 + number % 2) for number in range(30)]
    files = [masked(ids, mask, f"data_{number}.pt") for number, (ids, mask) in enumerate(chats)]
    assert list(mask_notes(files)) == []
    files[3] = masked(chats[3][0], chats[5][1], "data_3.pt")
    (note,) = mask_notes(files)
    assert (note.severity, note.kind) == ("note", "begins")
    assert "as 7 8 9, got spans behind others in data_3.pt" in note.message


def test_of_half_of_the_masks_each_is_named() -> None:
    chats = [chat(number) for number in range(40)]
    wrong = {
        number
        for number in range(0, 40, 2)
        if chats[number][1].index(1) != chats[(number + 2) % 40][1].index(1)
    }
    files = [
        masked(ids, chats[(number + 2) % 40][1] if number in wrong else mask, f"data_{number}.pt")
        for number, (ids, mask) in enumerate(chats)
    ]
    (note,) = mask_notes(files)
    assert f"in {len(wrong)} files, data_{min(wrong)}.pt" in note.message


@pytest.mark.parametrize("n_files", [1, 2, 40])
def test_without_a_template_nothing_is_told(n_files: int) -> None:
    rng = np.random.default_rng(0)
    masks = [[0] * int(rng.integers(1, 30)) + [1] * 30 for _ in range(n_files)]
    files = [masked(rng.integers(0, 1000, len(mask)).tolist(), mask, "x") for mask in masks]
    assert list(mask_notes(files)) == []


def test_two_templates_are_both_usual() -> None:
    files = [masked(*chat(number), f"data_{number}.pt") for number in range(30)]
    for number in (1, 5, 9, 13):
        ids, mask = chat(number)
        first = mask.index(1)
        files[number] = masked(
            [*ids[:first], 3, 4, 5, *ids[first:]], [*mask[:first], 0, 0, 0, *mask[first:]], "x"
        )
    assert list(mask_notes(files)) == []


def test_masks_of_zeros_are_told() -> None:
    files = [
        masked(*chat(0), "data_0.pt"),
        masked([5, 6], [0, 0], "data_1.pt"),
        masked([5], [0], "data_2.pt"),
    ]
    (note,) = mask_notes(files)
    assert "got masks of zeros in 2 files, data_1.pt, data_2.pt" in note.message
