"""Asks that are answered turn by turn: ids, masks, texts, limits, and what is refused."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from datagen.engines.base import Answer
from datagen.engines.sampling import Sampling, seed_of
from datagen.errors import RunFailedError
from datagen.prompts.asking import Asking, make_asks
from datagen.prompts.prompt import Ask, Given, Prompt
from datagen.prompts.settings import PromptSettings
from datagen.prompts.stats import PromptStats
from datagen.template.chat import ChatTemplate
from datagen.worker.answering import Answered, Answerer, AnsweringOrder
from datagen.worker.write_behind import UnitProgress
from schemas.sample import sample_id
from tests.datagen.prompts.written import jsonl, talk
from tests.datagen.template import real

STOP = 99


class Scripted:
    """An engine that says what it is told to, by the number of answers that it gave to a prompt."""

    def __init__(self, script: dict[int, list[Answer]], lose: int = 0) -> None:
        self.script = script
        self.asked: list[tuple[tuple[int, ...], int]] = []
        self._lose = lose

    def answer(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seeds: Sequence[int]
    ) -> list[Answer]:
        self.asked += [(tuple(prompt), seed) for prompt, seed in zip(prompts, seeds, strict=True)]
        return [self.script[prompt[0]].pop(0) for prompt in prompts][self._lose :]


def said(*ids: int) -> Answer:
    return Answer(ids, "stop" if ids[-1] == STOP else "length")


def array(*ids: int) -> "np.ndarray[Any, np.dtype[np.int32]]":
    return np.array(ids, np.int32)


def ask_of(first: int, length: int = 3, following: int = 0) -> Prompt:
    """Return an ask of `length` tokens; before each later answer stand ending 70, and 71, 72."""
    given = tuple(Given(array(70), array(71, 72)) for _ in range(following))
    name = sample_id([first, length, following])
    ids = array(first, *range(1, length))
    mask = np.zeros(length, np.uint8)
    return Prompt("a.jsonl:1", "c", ids, mask, name, name, None, Ask(given, None, None, 9, 9))


def answered(engine: Any, asks: Sequence[Prompt], **changes: Any) -> Answered:
    order = AnsweringOrder(
        sampling=Sampling(
            max_tokens=4, sample_tokens=changes.pop("sample_tokens", 50), stop_token_ids=(STOP,)
        ),
        seed=5,
        batch=changes.pop("batch", 8),
        quarantine_truncated=changes.pop("quarantine_truncated", False),
        prompts=PromptSettings(path="a.jsonl", **changes),
    )
    return Answerer(engine, order, None, "run", UnitProgress()).answer(asks)


def test_ids_are_those_given_and_those_said_and_only_those_said_are_trained() -> None:
    engine = Scripted({10: [said(20, STOP), said(21, 22, 23, 24), said(25, STOP)]})
    (prompt,) = answered(engine, [ask_of(10, following=2)]).prompts
    # The first answer ended itself, the second was cut: the template's ending closes it, untrained.
    assert prompt.input_ids.tolist() == [10, 1, 2, 20, STOP, 71, 72, 21, 22, 23, 24, 70, 71, 72, 25, STOP]
    assert prompt.loss_mask.tolist() == [0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1]
    assert (prompt.sample_id, prompt.ask) == (sample_id(prompt.input_ids.tolist()), None)
    assert [turn["generated"] for turn in json.loads(prompt.text or "")] == [
        {"finish": "stop", "n_tokens": 2},
        {"finish": "length", "n_tokens": 4},
        {"finish": "stop", "n_tokens": 2},
    ]


def test_each_answer_is_asked_with_all_before_it_and_a_seed_of_its_own() -> None:
    asks = [ask_of(10, following=1), ask_of(11, length=2)]
    engine = Scripted({10: [said(20, STOP), said(21, STOP)], 11: [said(22, STOP)]})
    answered(engine, asks)
    first, second = (ask.prompt_id for ask in asks)
    assert engine.asked == [
        ((10, 1, 2), seed_of(5, first, 0)),
        ((11, 1), seed_of(5, second, 0)),
        ((10, 1, 2, 20, STOP, 71, 72), seed_of(5, first, 1)),
    ]


def test_a_conversation_ends_where_it_is_full_or_is_refused() -> None:
    script = {10: [said(20, STOP)]}
    (prompt,) = answered(Scripted({**script}), [ask_of(10, following=1)], sample_tokens=7).prompts
    assert prompt.input_ids.tolist() == [10, 1, 2, 20, STOP]
    full = answered(
        Scripted({10: [said(20, STOP)]}), [ask_of(10, following=1)], sample_tokens=7, on_too_long="quarantine"
    )
    assert [(row.reason, row.sample_id) for row in full.quarantined] == [("too_long", None)]


def test_a_cut_answer_is_kept_or_refused_and_then_nothing_more_is_asked() -> None:
    script = {10: [said(20, 21, 22, 23), said(24, STOP)]}
    assert len(answered(Scripted({10: [*script[10]]}), [ask_of(10, following=1)]).prompts) == 1
    engine = Scripted(script)
    refused = answered(engine, [ask_of(10, following=1)], quarantine_truncated=True)
    assert [row.reason for row in refused.quarantined] == ["truncated_answer"]
    assert len(engine.asked) == 1


def test_answers_with_too_few_tokens_and_answers_given_before_are_recorded() -> None:
    asks = [ask_of(10), ask_of(11), ask_of(10, following=0)]
    object.__setattr__(asks[2], "prompt_id", "f" * 64)
    engine = Scripted({10: [said(20, 21, STOP), said(20, 21, STOP)], 11: [said(STOP)]})
    result = answered(engine, asks, min_trained_tokens=2)
    assert len(result.prompts) == 1
    reasons = {row.reason: row for row in result.quarantined}
    assert set(reasons) == {"too_few_trained_tokens", "duplicate_answer"}
    assert reasons["duplicate_answer"].sample_id == result.prompts[0].sample_id
    assert reasons["duplicate_answer"].prompt_id != result.prompts[0].prompt_id


def test_an_engine_that_loses_count_or_breaks_a_limit_stops_the_run() -> None:
    with pytest.raises(RunFailedError, match="expected 1 answers back, got 0"):
        answered(Scripted({10: [said(20, STOP)]}, lose=1), [ask_of(10)])
    with pytest.raises(RunFailedError, match="expected 1 to 4 tokens, got 5"):
        answered(Scripted({10: [said(1, 2, 3, 4, 5)]}), [ask_of(10)])


def test_told_to_stop_what_is_not_answered_comes_back() -> None:
    asks = [ask_of(10, length=4), ask_of(11, length=3), ask_of(12, length=2)]
    engine = Scripted({number: [said(20, STOP)] for number in (10, 11, 12)})
    order = AnsweringOrder(Sampling(max_tokens=4, sample_tokens=9), 0, 1, False, PromptSettings(path="a"))
    answerer = Answerer(engine, order, None, "run", UnitProgress(), lambda: len(engine.asked) >= 2)
    result = answerer.answer(asks)
    assert [prompt.input_ids[0] for prompt in result.prompts] == [10, 11]
    assert list(result.unfinished) == [asks[2]]


def spoken(
    tmp_path: Any, record: dict[str, Any], script: list[str], name: str = "smollm2", **settings: Any
) -> tuple[Prompt, ChatTemplate]:
    """Return what comes of a conversation whose target says `script`, by a real template."""
    template = ChatTemplate(real.tokenizer(name))
    (end,) = template.ending_token_ids()
    config = PromptSettings(path=str(jsonl(tmp_path / "a.jsonl", [record])), **settings)
    asking = Asking({"mode": "generate"}, 1, 5, 9)
    (ask,) = make_asks(config, template, 200_000, PromptStats("run"), asking)
    assert isinstance(ask, Prompt)
    answers = [Answer((*template.token_ids(text), end), "stop") for text in script]
    engine = Scripted({int(ask.input_ids[0]): answers})
    sampling = Sampling(max_tokens=500, sample_tokens=4000, stop_token_ids=(end,))
    order = AnsweringOrder(sampling, 0, 8, False, config)
    (prompt,) = Answerer(engine, order, template, "run", UnitProgress()).answer([ask]).prompts
    return prompt, template


def test_the_text_is_the_conversation_with_the_targets_own_answers(tmp_path: Any) -> None:
    record = talk("One?", "not the target's", "Two?")
    prompt, template = spoken(tmp_path, record, ["Eins.", "Zwei."])
    messages = json.loads(prompt.text or "")
    assert [(turn["role"], turn["content"]) for turn in messages] == [
        ("user", "One?"),
        ("assistant", "Eins."),
        ("user", "Two?"),
        ("assistant", "Zwei."),
    ]
    plain = [{"role": turn["role"], "content": turn["content"]} for turn in messages]
    ids = template.token_ids(template.render(plain).text)
    assert ids[: prompt.n_tokens] == prompt.input_ids.tolist()
    (tokens,) = template.encode([template.render(plain)])
    assert tokens.loss_mask[: prompt.n_tokens].tolist() == prompt.loss_mask.tolist()  # type: ignore[union-attr]
    assert all("renders_alike" not in turn.get("generated", {}) for turn in messages)


def test_where_the_template_rewrites_an_answer_the_targets_ids_stay_and_it_is_said(tmp_path: Any) -> None:
    """Qwen3 takes the thinking out of an earlier answer; the sample keeps it, as the target said it."""
    thinking = "<think>\nhm\n</think>\n\nEins."
    prompt, template = spoken(tmp_path, talk("One?", "x", "Two?"), [thinking, "Zwei."], "qwen3")
    assert "<think>\nhm\n</think>\n\nEins.<|im_end|>" in template.text_of(prompt.input_ids.tolist())
    first, second = (turn["generated"] for turn in json.loads(prompt.text or "") if "generated" in turn)
    assert first["renders_alike"] is False
    assert "renders_alike" not in second


def test_tokens_that_come_to_a_text_which_is_tokenised_otherwise_stay(tmp_path: Any) -> None:
    template = ChatTemplate(real.tokenizer("smollm2"))
    letters = [template.token_ids(letter)[0] for letter in "hello"]
    assert template.token_ids("hello") != letters
    prompt, _ = spoken(tmp_path, talk("One?"), ["hello"])
    (end,) = template.ending_token_ids()
    config = PromptSettings(path=str(tmp_path / "a.jsonl"))
    (ask,) = make_asks(config, template, 200_000, PromptStats("run"), Asking({}, 1, 5, 9))
    assert isinstance(ask, Prompt)
    engine = Scripted({int(ask.input_ids[0]): [Answer((*letters, end), "stop")]})
    order = AnsweringOrder(
        Sampling(max_tokens=50, sample_tokens=400, stop_token_ids=(end,)), 0, 8, False, config
    )
    (other,) = Answerer(engine, order, template, "run", UnitProgress()).answer([ask]).prompts
    assert other.input_ids.tolist()[-6:] == [*letters, end]
    same, differing = (json.loads(one.text or "")[-1] for one in (prompt, other))
    assert same["content"] == differing["content"] == "hello"
    assert differing["generated"] == {"finish": "stop", "n_tokens": 6, "renders_alike": False}


def test_without_text_the_ends_of_the_answers_are_kept(tmp_path: Any) -> None:
    prompt, _ = spoken(tmp_path, talk("One?"), ["Eins."], keep_text=False)
    (turn,) = json.loads(prompt.text or "")
    assert turn == {
        "role": "assistant",
        "generated": {"finish": "stop", "n_tokens": turn["generated"]["n_tokens"]},
    }
