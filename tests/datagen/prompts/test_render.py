"""From conversations to prompts: cut, counted, checked, made once."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datagen.prompts import PromptStats
from datagen.template.chat import ChatTemplate
from schemas.record import canonical_json
from schemas.sample import prompt_id, sample_id
from tests.datagen.prompts.written import jsonl, making, talk
from tests.datagen.template import real


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return ChatTemplate(real.tokenizer("smollm2"))


def tokens(ids: list[int], mask: list[int], **fields: Any) -> dict[str, Any]:
    return fields | {"input_ids": ids, "loss_mask": mask}


def test_a_prompt_knows_what_it_is(tmp_path: Path, template: ChatTemplate) -> None:
    record = talk("Why?", "Because.", id="c")
    (prompt,), _, stats = making(jsonl(tmp_path / "a.jsonl", [record]), template)
    ids = real.tokenizer("smollm2").apply_chat_template(record["messages"], tokenize=True)["input_ids"]
    assert prompt.input_ids.tolist() == ids
    assert prompt.input_ids.dtype == np.dtype(np.int32)
    assert prompt.loss_mask.dtype == np.dtype(np.uint8)
    assert prompt.sample_id == sample_id(ids)
    assert prompt.prompt_id == prompt_id(ids, {"mode": "capture"})
    assert prompt.text == canonical_json(record["messages"]).decode()
    assert (prompt.source, prompt.conversation_id) == ("a.jsonl:1", "c")
    assert (stats.n_tokens, stats.n_trained_tokens) == (prompt.n_tokens, prompt.n_trained)
    again = pickle.loads(pickle.dumps(prompt))
    assert np.array_equal(again.input_ids, prompt.input_ids)


def test_the_order_of_the_records_is_kept(tmp_path: Path, template: ChatTemplate) -> None:
    records = [talk(f"q{at}", "a") if at % 3 else {"no": at} for at in range(600)]
    prompts, quarantined, _ = making(jsonl(tmp_path / "a.jsonl", records), template)
    lines = [int(item.source.split(":")[1]) for item in prompts]
    assert lines == [at + 1 for at in range(600) if at % 3]
    assert len(quarantined) == 200


def test_a_long_sample_is_cut_or_quarantined(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [tokens([1, 2, 3, 4], [0, 1, 1, 1]), tokens([1, 2], [0, 1])])
    prompts, _, stats = making(path, max_tokens=3)
    assert [prompt.input_ids.tolist() for prompt in prompts] == [[1, 2, 3], [1, 2]]
    assert prompts[0].loss_mask.tolist() == [0, 1, 1]
    assert stats.truncated == 1
    prompts, quarantined, stats = making(path, max_tokens=3, on_too_long="quarantine")
    assert len(prompts) == 1
    assert (quarantined[0].reason, quarantined[0].source) == ("too_long", "a.jsonl:1")
    assert stats.truncated == 0


def test_a_cut_text_says_so(tmp_path: Path, template: ChatTemplate) -> None:
    path = jsonl(tmp_path / "a.jsonl", [talk("q", "word " * 3000, "more?", "yes")])
    (prompt,), _, _ = making(path, template, max_tokens=100)
    assert prompt.n_tokens == 100
    _, (refused,), _ = making(path, template, max_tokens=100, on_too_long="quarantine")
    assert refused.reason == "too_long"


def test_too_few_trained_tokens_after_the_cut(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [tokens([1, 2, 3], [0, 0, 1]), tokens([4, 5], [1, 1])])
    prompts, (refused,), _ = making(path, max_tokens=2)
    assert [prompt.input_ids.tolist() for prompt in prompts] == [[4, 5]]
    assert refused.reason == "too_few_trained_tokens"
    assert refused.detail == "expected at least 1 trained tokens in the first 2, got 0"


@pytest.mark.parametrize(("wrong", "message"), [(10, "from 0 to 9, got 10 at 1"), (-1, "got -1 at 1")])
def test_an_id_outside_the_vocabulary(tmp_path: Path, wrong: int, message: str) -> None:
    path = jsonl(tmp_path / "a.jsonl", [tokens([9, wrong], [1, 1])])
    _, (refused,), _ = making(path, vocab_size=10)
    assert refused.reason == "token_out_of_vocabulary"
    assert message in refused.detail


def test_the_same_ids_are_made_once(tmp_path: Path) -> None:
    records = [
        tokens([1, 2, 3], [0, 1, 1]),
        tokens([1, 2, 3], [0, 1, 1], id="again"),
        tokens([1, 2, 3], [0, 0, 1], id="c"),
        tokens([1, 2, 4], [0, 0, 1]),
    ]
    prompts, (conflict,), stats = making(jsonl(tmp_path / "a.jsonl", records))
    assert [prompt.source for prompt in prompts] == ["a.jsonl:1", "a.jsonl:4"]
    assert stats.duplicates == 1
    assert conflict.reason == "mask_conflict"
    assert conflict.detail == "a.jsonl:3 has the token ids of a.jsonl:1, but another loss mask"
    assert conflict.sample_id == prompts[0].sample_id
    assert (conflict.source, conflict.conversation_id) == ("a.jsonl:3", "c")


def test_a_conversation_that_the_template_refuses(tmp_path: Path) -> None:
    alternating = real.with_template(
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    twice = talk("q", "a")
    twice["messages"].insert(0, {"role": "user", "content": "first"})
    half = talk("q", "a\ud800")
    path = jsonl(tmp_path / "a.jsonl", [twice, talk("q", "a"), half])
    prompts, (refused, torn), _ = making(path, ChatTemplate(alternating))
    assert [prompt.source for prompt in prompts] == ["a.jsonl:2"]
    assert refused.reason == torn.reason == "unrenderable"
    assert refused.detail == "the chat template refuses it: TemplateError: roles must alternate"
    assert "half a surrogate pair" in torn.detail


def test_a_slow_tokenizers_refusal_costs_one_sample(tmp_path: Path, template: ChatTemplate) -> None:
    path = jsonl(tmp_path / "a.jsonl", [talk("q", "\n\nlead"), talk("q", "plain")])
    chat = ChatTemplate(real.tokenizer("smollm2"))
    chat._encoder.is_fast = False
    prompts, quarantined, _ = making(path, chat)
    by_offsets, none, _ = making(path, template)
    assert not none
    assert [(item.reason, item.source) for item in quarantined] == [("unrenderable", "a.jsonl:1")]
    assert prompts[0].input_ids.tolist() == by_offsets[1].input_ids.tolist()
    assert prompts[0].loss_mask.tolist() == by_offsets[1].loss_mask.tolist()


def test_texts_are_left_out_where_asked(tmp_path: Path, template: ChatTemplate) -> None:
    (prompt,), _, _ = making(jsonl(tmp_path / "a.jsonl", [talk("q", "a")]), template, keep_text=False)
    assert prompt.text is None


def test_the_demos_prompts_are_all_accounted_for(template: ChatTemplate) -> None:
    """ShareGPT records as they are: empty ones, answers first, pieces of conversations."""
    prompts, quarantined, stats = making(
        real.sharegpt(), template, 49152, max_tokens=384, min_trained_tokens=16
    )
    assert stats.kept >= 400
    assert stats.trimmed_leading_answer > 100
    assert {item.reason for item in quarantined} <= {"empty", "no_answer", "too_few_trained_tokens"}
    assert len({prompt.sample_id for prompt in prompts}) == len(prompts)
    assert len({prompt.conversation_id for prompt in prompts}) < len(prompts)
    for prompt in prompts[:50]:
        assert prompt.text is not None
        messages = json.loads(prompt.text)
        ids = real.tokenizer("smollm2").apply_chat_template(messages, tokenize=True)["input_ids"]
        assert prompt.input_ids.tolist() == ids[:384]


def test_what_is_no_unicode_can_still_be_told() -> None:
    record = PromptStats("run").quarantine("empty", "x\udcff", "f:1", "c\ud800")
    assert (record.detail, record.conversation_id) == ("x?", "c?")
