"""From conversations to what the target is asked: the token ids before each answer, `n` answers each.

A prompt of tokens is asked likewise: its trained ids are the answers that it had, and they are not kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from datagen.prompts.conversation import Conversation, TokenColumns
from datagen.prompts.dedupe import dedupe
from datagen.prompts.errors import RefusedRecord
from datagen.prompts.prompt import Ask, Given, Prompt
from datagen.prompts.read import read
from datagen.prompts.render import check_vocabulary, no_template
from datagen.prompts.settings import PromptSettings
from datagen.prompts.stats import PromptStats
from datagen.prompts.turns import questions
from datagen.template.errors import UnrenderableError
from schemas.record import canonical_json
from schemas.records import QuarantinedSample
from schemas.sample import prompt_id

if TYPE_CHECKING:
    from datagen.template.chat import ChatTemplate


@dataclass(frozen=True)
class Asking:
    """How prompts are to be answered.

    `request` is what decides an answer beside its prompt, as it goes into the prompt's id; `n` answers are
    asked of each, expected to have `expected_tokens` and at most `most_tokens`.
    """

    request: Mapping[str, object]
    n: int
    expected_tokens: int
    most_tokens: int


class _Conversation(NamedTuple):
    """What is given before each answer, and the texts that it comes from."""

    given: tuple[Given, ...]
    turns: str | None
    tools: str | None


def make_asks(
    settings: PromptSettings,
    template: "ChatTemplate | None",
    vocab_size: int,
    stats: PromptStats,
    asking: Asking,
) -> Iterator[Prompt | QuarantinedSample]:
    """Yield what is asked of every prompt of the sources, once, and a record of each that is not asked.

    `stats` count conversations, of which each gives `asking.n` prompts. Raises `PromptError` when a source
    cannot be read, and when messages come up but `template` is `None`.
    """
    asker = _Asker(template, settings, vocab_size, stats, asking)
    for item in dedupe(asker.first_asks(), stats):
        yield item
        if isinstance(item, Prompt):
            for number in range(1, asking.n):
                yield asker.numbered(item, number)


class _Asker:
    def __init__(
        self,
        template: "ChatTemplate | None",
        settings: PromptSettings,
        vocab_size: int,
        stats: PromptStats,
        asking: Asking,
    ) -> None:
        self._template = template
        self._settings = settings
        self._vocab_size = vocab_size
        self._stats = stats
        self._asking = asking

    def first_asks(self) -> Iterator[Prompt | QuarantinedSample]:
        """Yield each conversation's first ask, or why there is none."""
        for item in read(self._settings, self._stats):
            if isinstance(item, QuarantinedSample):
                yield item
                continue
            try:
                yield self._ask(item)
            except RefusedRecord as verdict:
                yield self._stats.quarantine(
                    verdict.reason, verdict.detail, item.source, item.conversation_id
                )

    def numbered(self, prompt: Prompt, number: int) -> Prompt:
        """Return another ask of the same: its answer has a seed of its own."""
        name = self._prompt_id(_given_of(prompt), number)
        return replace(prompt, prompt_id=name, sample_id=name)

    def _ask(self, item: Conversation) -> Prompt:
        asked = self._of_tokens(item.tokens) if item.tokens is not None else self._of_messages(item)
        ids = asked.given[0].ids
        most = self._settings.max_tokens
        if not len(ids):
            raise RefusedRecord("empty", "expected a token before the answer, got none")
        if len(ids) >= most:
            raise RefusedRecord(
                "too_long", f"expected fewer than {most} tokens before the answer, got {len(ids)}"
            )
        name = self._prompt_id(asked.given, 0)
        return Prompt(
            source=item.source,
            conversation_id=item.conversation_id,
            input_ids=ids,
            loss_mask=np.zeros(len(ids), np.uint8),
            prompt_id=name,
            sample_id=name,
            text=asked.turns if self._settings.keep_text else None,
            ask=Ask(
                following=asked.given[1:],
                turns=asked.turns,
                tools=asked.tools,
                expected_tokens=min(most, self._n_tokens(asked.given, self._asking.expected_tokens)),
                most_tokens=min(most, self._n_tokens(asked.given, self._asking.most_tokens)),
            ),
        )

    @staticmethod
    def _n_tokens(given: Sequence[Given], of_an_answer: int) -> int:
        return sum(len(one.ids) for one in given) + len(given) * of_an_answer

    def _prompt_id(self, given: Sequence[Given], number: int) -> str:
        pieces = [piece for one in given for piece in (one.ending, one.ids)]
        request = {**self._asking.request, "answer": number, "given": [len(piece) for piece in pieces]}
        return prompt_id([token for piece in pieces for token in piece.tolist()], request)

    def _of_messages(self, item: Conversation) -> _Conversation:
        if self._template is None:
            raise no_template(item.source)
        messages = questions(item.messages or (), self._settings.system_prompt, self._stats)
        try:
            given = tuple(
                self._given(self._template, asked.ending, asked.text)
                for asked in self._template.asked(messages, item.tools)
            )
        except UnrenderableError as error:
            raise RefusedRecord("unrenderable", error.headline) from error
        tools = canonical_json(list(item.tools)).decode("ascii") if item.tools else None
        return _Conversation(given, canonical_json(list(messages)).decode("ascii"), tools)

    def _given(self, template: "ChatTemplate", ending: str, text: str) -> Given:
        """Return the ids of both; tokenised as one, since a tokenizer may look at what stands before."""
        whole = template.token_ids(ending + text)
        closing = template.token_ids(ending) if ending else []
        if whole[: len(closing)] != closing:
            raise UnrenderableError(f"a token reaches over what ends an answer, {ending!r}")
        check_vocabulary(whole, self._vocab_size)
        return Given(np.array(closing, np.int32), np.array(whole[len(closing) :], np.int32))

    def _of_tokens(self, tokens: TokenColumns) -> _Conversation:
        check_vocabulary(list(tokens.input_ids), self._vocab_size)
        runs = [
            (trained, [token for token, _ in run])
            for trained, run in groupby(
                zip(tokens.input_ids, tokens.loss_mask, strict=True), key=lambda pair: pair[1]
            )
        ]
        if runs[0][0]:
            raise RefusedRecord("no_answer", "expected tokens before the first trained one, got none")
        if len(runs) > 1 and not runs[-1][0]:
            runs.pop()  # behind the last answer
        none = np.empty(0, np.int32)
        given = [Given(none, np.array(ids, np.int32)) for trained, ids in runs if not trained]
        return _Conversation(tuple(given), None, None)


def _given_of(prompt: Prompt) -> tuple[Given, ...]:
    assert prompt.ask is not None
    return (Given(np.empty(0, np.int32), prompt.input_ids), *prompt.ask.following)
