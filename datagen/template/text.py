"""Turns to text, by the tokenizer's own chat template as transformers renders it.

A template is foreign code: whatever it raises is one conversation's trouble, told by name.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from transformers.utils.chat_template_utils import render_jinja_template

from datagen.template.errors import TemplateError, UnrenderableError
from schemas.problem import Problem

Message = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]]
Span = tuple[int, int]
"""Characters `[start, end)` of a rendered text."""

GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
REFUSALS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class TextRenderer:
    """Renders turns with a tokenizer's chat template; `options` are variables that the template reads."""

    def __init__(self, tokenizer: Any, options: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._options = dict(options)
        try:
            template: str = tokenizer.get_chat_template()
        except ValueError as error:
            problem = Problem(
                where="chat_template",
                kind="missing",
                message="expected a chat template beside the tokenizer, got none that can be chosen",
                repair="put a chat_template.jinja there, or give prompts as input_ids and loss_mask",
            )
            raise TemplateError("the tokenizer has no chat template", [problem]) from error
        self.marks_answers = GENERATION.search(template) is not None
        """Whether the template says itself, by `{% generation %}`, what the assistant generates."""

    def text(self, messages: Sequence[Message], tools: Tools | None, *, prompt: bool = False) -> str:
        """Return the rendered turns, with the generation prompt behind them where `prompt`.

        Raises `UnrenderableError` when the template refuses.
        """
        try:
            text: str = self._tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) if tools else None,
                tokenize=False,
                add_generation_prompt=prompt,
                **self._options,
            )
        except REFUSALS as error:
            raise _refused(error) from error
        return text

    def marked_text(self, messages: Sequence[Message], tools: Tools | None) -> tuple[str, tuple[Span, ...]]:
        """Return the rendered turns and what stands in the template's `{% generation %}` blocks.

        Raises `UnrenderableError` when the template refuses.
        """
        listed = list(tools) if tools else None
        try:
            texts, spans = render_jinja_template(
                conversations=[list(messages)],
                tools=listed,
                chat_template=self._tokenizer.get_chat_template(tools=listed),
                return_assistant_tokens_mask=True,
                **{**self._tokenizer.special_tokens_map, **self._options},
            )
        except REFUSALS as error:
            raise _refused(error) from error
        return texts[0], tuple((start, end) for start, end in spans[0] if end > start)


def _refused(error: Exception) -> UnrenderableError:
    return UnrenderableError(f"the chat template refuses it: {type(error).__name__}: {error}")
