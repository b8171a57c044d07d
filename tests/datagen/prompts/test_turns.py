"""Which turns are kept: from the first question to the last answer."""

import pytest

from datagen.prompts.conversation import Message
from datagen.prompts.errors import RefusedRecord
from datagen.prompts.stats import PromptStats
from datagen.prompts.turns import trimmed

ROLES = {"s": "system", "d": "developer", "u": "user", "a": "assistant", "t": "tool"}


def turns(letters: str) -> list[Message]:
    return [{"role": ROLES[letter], "content": str(at)} for at, letter in enumerate(letters)]


@pytest.mark.parametrize(
    ("letters", "kept", "leading", "trailing"),
    [
        ("ua", "01", 0, 0),
        ("sua", "012", 0, 0),
        ("aua", "12", 1, 0),
        ("sauau", "023", 1, 1),
        ("uau", "01", 0, 1),
        ("uuaa", "0123", 0, 0),
        ("uatau", "0123", 0, 1),
        ("taua", "23", 1, 0),
        ("sdusa", "01234", 0, 0),
    ],
)
def test_from_the_first_question_to_the_last_answer(
    letters: str, kept: str, leading: int, trailing: int
) -> None:
    stats = PromptStats("run")
    assert "".join(turn["content"] for turn in trimmed(turns(letters), None, stats)) == kept
    assert (stats.trimmed_leading_answer, stats.trimmed_trailing_turns) == (leading, trailing)


@pytest.mark.parametrize(
    ("letters", "got"),
    [
        ("u", "no answer at all"),
        ("s", "no answer at all"),
        ("a", "before"),
        ("sa", "before"),
        ("aau", "before"),
    ],
)
def test_no_answer_to_a_question(letters: str, got: str) -> None:
    stats = PromptStats("run")
    with pytest.raises(RefusedRecord, match=got) as caught:
        trimmed(turns(letters), None, stats)
    assert caught.value.reason == "no_answer"
    assert stats.trimmed_leading_answer == 0


def test_a_system_prompt_stands_in_front_only_where_there_is_none() -> None:
    stats = PromptStats("run")
    assert trimmed(turns("ua"), "Be kind.", stats)[0] == {"role": "system", "content": "Be kind."}
    assert [turn["content"] for turn in trimmed(turns("dua"), "Be kind.", stats)] == ["0", "1", "2"]
