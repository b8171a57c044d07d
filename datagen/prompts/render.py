"""From conversations to prompts: rendered, masked, cut, and checked against the target's vocabulary.

Conversations are tokenised in batches (the fast tokenizers use all cores for one), in the order they came.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from datagen.prompts.conversation import Conversation
from datagen.prompts.dedupe import dedupe
from datagen.prompts.errors import PromptError, RefusedRecord
from datagen.prompts.prompt import Prompt
from datagen.prompts.read import read
from datagen.prompts.settings import PromptSettings
from datagen.prompts.stats import PromptStats
from datagen.prompts.turns import trimmed
from datagen.template.errors import UnrenderableError
from schemas.problem import Problem
from schemas.record import canonical_json
from schemas.records import QuarantinedSample
from schemas.sample import prompt_id, sample_id

if TYPE_CHECKING:
    from datagen.template.chat import ChatTemplate, Rendered

BATCH_CONVERSATIONS = 256
CAPTURE_REQUEST: dict[str, object] = {"mode": "capture"}
INT32_MAX = 2**31 - 1


def make_prompts(
    settings: PromptSettings, template: "ChatTemplate | None", vocab_size: int, stats: PromptStats
) -> Iterator[Prompt | QuarantinedSample]:
    """Yield every prompt of the sources once, and a record of each that is not made.

    Raises `PromptError` when a source cannot be read, and when messages come up but `template` is `None`.
    """
    return dedupe(render(read(settings, stats), template, settings, vocab_size, stats), stats)


def render(
    conversations: Iterable[Conversation | QuarantinedSample],
    template: "ChatTemplate | None",
    settings: PromptSettings,
    vocab_size: int,
    stats: PromptStats,
) -> Iterator[Prompt | QuarantinedSample]:
    """Yield a prompt for each conversation, or why there is none; what is quarantined passes through."""
    renderer = _Renderer(template, settings, vocab_size, stats)
    source = iter(conversations)
    while batch := list(islice(source, BATCH_CONVERSATIONS)):
        yield from renderer.batch(batch)


@dataclass(frozen=True)
class _Encoded:
    input_ids: list[int]
    loss_mask: NDArray[np.uint8]
    cut: bool
    text: str | None


class _Renderer:
    def __init__(
        self,
        template: "ChatTemplate | None",
        settings: PromptSettings,
        vocab_size: int,
        stats: PromptStats,
    ) -> None:
        self._template = template
        self._settings = settings
        self._vocab_size = vocab_size
        self._stats = stats

    def batch(self, batch: list[Conversation | QuarantinedSample]) -> Iterator[Prompt | QuarantinedSample]:
        rendered: dict[int, tuple[Rendered, str | None]] = {}
        refused: dict[int, QuarantinedSample] = {}
        for at, item in enumerate(batch):
            if isinstance(item, Conversation) and item.messages is not None:
                try:
                    rendered[at] = self._rendered(item)
                except RefusedRecord as verdict:
                    refused[at] = self._refuse(item, verdict)
        encoded = self._encoded(rendered)
        for at, item in enumerate(batch):
            if isinstance(item, QuarantinedSample):
                yield item
            elif at in refused:
                yield refused[at]
            else:
                yield self._prompt(item, encoded[at] if at in encoded else _columns(item))

    def _rendered(self, item: Conversation) -> "tuple[Rendered, str | None]":
        if self._template is None:
            raise no_template(item.source)
        messages = trimmed(item.messages or (), self._settings.system_prompt, self._stats)
        try:
            rendered = self._template.render(messages, item.tools)
        except UnrenderableError as error:
            raise RefusedRecord("unrenderable", error.headline) from error
        text = canonical_json(list(messages)).decode("ascii") if self._settings.keep_text else None
        return rendered, text

    def _encoded(
        self, rendered: "dict[int, tuple[Rendered, str | None]]"
    ) -> "dict[int, _Encoded | UnrenderableError]":
        if self._template is None or not rendered:
            return {}
        encoded: dict[int, _Encoded | UnrenderableError] = {}
        tokens = self._template.encode([one for one, _ in rendered.values()], self._settings.max_tokens)
        for (at, (_, text)), one in zip(rendered.items(), tokens, strict=True):
            if isinstance(one, UnrenderableError):
                encoded[at] = one
            else:
                encoded[at] = _Encoded(one.input_ids, one.loss_mask, one.cut, text)
        return encoded

    def _prompt(
        self, item: Conversation, encoded: "_Encoded | UnrenderableError"
    ) -> Prompt | QuarantinedSample:
        try:
            if isinstance(encoded, UnrenderableError):
                raise RefusedRecord("unrenderable", encoded.headline)
            return self._checked(item, encoded)
        except RefusedRecord as verdict:
            return self._refuse(item, verdict)

    def _checked(self, item: Conversation, encoded: "_Encoded") -> Prompt:
        ids, mask = encoded.input_ids, encoded.loss_mask
        most = self._settings.max_tokens
        if not ids:
            raise RefusedRecord("empty", "expected at least one token, got none")
        cut = encoded.cut or len(ids) > most
        if cut and self._settings.on_too_long == "quarantine":
            raise RefusedRecord("too_long", f"expected at most {most} tokens, got more")
        if cut:
            self._stats.truncated += 1
            ids, mask = ids[:most], mask[:most]
        check_vocabulary(ids, self._vocab_size)
        trained, least = int(np.count_nonzero(mask)), self._settings.min_trained_tokens
        if trained < least:
            behind = f" in the first {most}" if cut else ""
            raise RefusedRecord(
                "too_few_trained_tokens", f"expected at least {least} trained tokens{behind}, got {trained}"
            )
        return Prompt(
            source=item.source,
            conversation_id=item.conversation_id,
            input_ids=np.array(ids, dtype=np.int32),
            loss_mask=np.array(mask, dtype=np.uint8),
            prompt_id=prompt_id(ids, CAPTURE_REQUEST),
            sample_id=sample_id(ids),
            text=encoded.text,
        )

    def _refuse(self, item: Conversation, verdict: RefusedRecord) -> QuarantinedSample:
        return self._stats.quarantine(verdict.reason, verdict.detail, item.source, item.conversation_id)


def check_vocabulary(ids: list[int], vocab_size: int) -> None:
    """Raise `RefusedRecord` for an id that the vocabulary does not have."""
    least, most = min(ids, default=0), max(ids, default=0)
    if least < 0 or most >= min(vocab_size, INT32_MAX + 1):
        wrong = least if least < 0 else most
        raise RefusedRecord(
            "token_out_of_vocabulary",
            f"expected token ids from 0 to {vocab_size - 1}, got {wrong} at {ids.index(wrong)}",
        )


def no_template(source: str) -> PromptError:
    """Return the error of messages that no chat template renders."""
    problem = Problem(
        where=source,
        kind="template",
        message="expected input_ids and loss_mask, got messages, and no chat template to render them",
        repair="give tokens, or a model whose folder holds a chat_template.jinja",
    )
    return PromptError("the prompts cannot be rendered", [problem])


def _columns(item: Conversation) -> _Encoded:
    if item.tokens is None:
        raise TypeError(f"{item.source}: expected messages or tokens, got neither")
    mask = np.array(item.tokens.loss_mask, dtype=np.uint8)
    return _Encoded(list(item.tokens.input_ids), mask, cut=False, text=None)
