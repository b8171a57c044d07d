"""Which turns a target is asked to answer, and what is given before each."""

from pathlib import Path
from typing import Any

import pytest

from datagen.prompts import Asking, Prompt, PromptSettings, PromptStats, make_asks
from datagen.prompts.errors import RefusedRecord
from datagen.prompts.turns import questions
from schemas.records import QuarantinedSample
from tests.datagen.prompts.written import jsonl

ROLES = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
ASKING = Asking({"mode": "generate", "seed": 0}, 1, 10, 20)


def turns(letters: str) -> list[dict[str, Any]]:
    return [{"role": ROLES[letter], "content": str(at)} for at, letter in enumerate(letters)]


def asking(
    path: Path, how: Asking = ASKING, vocab_size: int = 1000, **settings: Any
) -> tuple[list[Prompt], list[QuarantinedSample], PromptStats]:
    stats = PromptStats("run")
    items = list(make_asks(PromptSettings(path=str(path), **settings), None, vocab_size, stats, how))
    assert stats.read == stats.kept + stats.duplicates + stats.n_quarantined
    return (
        [item for item in items if isinstance(item, Prompt)],
        [item for item in items if isinstance(item, QuarantinedSample)],
        stats,
    )


@pytest.mark.parametrize(
    ("letters", "asked"),
    [
        ("ua", "0_"),
        ("u", "0_"),
        ("suaua", "01_3_"),
        ("suau", "01_3_"),
        ("auau", "1_3_"),
        ("uaaua", "0_3_"),
        ("uuau", "01_3_"),
        ("uatau", "0_"),
        ("utau", "0_"),
    ],
)
def test_each_question_is_answered_in_its_place(letters: str, asked: str) -> None:
    """`_` is an answer; of a conversation with tools the first call is asked for, and nothing behind it."""
    got = questions(turns(letters), None, PromptStats("run"))
    assert "".join("_" if turn["content"] is None else turn["content"] for turn in got) == asked


def test_nothing_asked_is_no_answer() -> None:
    with pytest.raises(RefusedRecord) as caught:
        questions(turns("sa"), None, PromptStats("run"))
    assert caught.value.reason == "no_answer"


def tokens(ids: list[int], mask: list[int]) -> dict[str, Any]:
    return {"input_ids": ids, "loss_mask": mask}


def test_trained_tokens_are_answers_that_are_asked_again(tmp_path: Path) -> None:
    record = tokens([1, 2, 3, 4, 5, 6, 7], [0, 0, 1, 0, 0, 1, 0])
    (prompt,), _, _ = asking(jsonl(tmp_path / "a.jsonl", [record]))
    assert prompt.ask is not None
    assert prompt.input_ids.tolist() == [1, 2]
    assert [(one.ending.tolist(), one.ids.tolist()) for one in prompt.ask.following] == [([], [4, 5])]
    assert (prompt.n_tokens, prompt.n_given, prompt.n_planned, prompt.n_most) == (2, 4, 24, 44)


def test_the_same_question_is_asked_once_and_n_times_where_told(tmp_path: Path) -> None:
    records = [tokens([1, 2, 3], [0, 0, 1]), tokens([1, 2, 9, 9], [0, 0, 1, 1]), tokens([1, 2], [0, 0])]
    path = jsonl(tmp_path / "a.jsonl", records)
    prompts, _, stats = asking(path, Asking({"mode": "generate"}, 3, 10, 20))
    assert (len(prompts), stats.kept, stats.duplicates) == (3, 1, 2)
    assert len({prompt.prompt_id for prompt in prompts}) == 3
    (first,), _, _ = asking(path, Asking({"mode": "generate"}, 1, 10, 20))
    assert first.prompt_id == prompts[0].prompt_id


def test_the_same_ids_asked_otherwise_are_other_asks(tmp_path: Path) -> None:
    """One long question, or a question and a follow-up of the same ids."""
    records = [tokens([1, 2, 3], [0, 0, 0]), tokens([1, 2, 9, 3, 9], [0, 0, 1, 0, 1])]
    prompts, _, _ = asking(jsonl(tmp_path / "a.jsonl", records))
    assert len({prompt.prompt_id for prompt in prompts}) == 2


def test_what_cannot_be_asked_is_recorded_with_its_reason(tmp_path: Path) -> None:
    records = [
        tokens([1, 2], [1, 1]),
        tokens(list(range(1, 9)), [0] * 8),
        tokens([5000], [0]),
        tokens([2**40], [0]),
        "{torn",
    ]
    prompts, refused, _ = asking(jsonl(tmp_path / "a.jsonl", records), max_tokens=8)
    assert not prompts
    assert [row.reason for row in refused] == [
        "no_answer",
        "too_long",
        "token_out_of_vocabulary",
        "token_out_of_vocabulary",
        "unreadable_record",
    ]
