"""What a record is once its format no longer matters: turns, or token ids with their loss mask."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]
"""A turn as chat templates take it: `role`, `content` (a string), and what tool use adds."""

ASSISTANT = "assistant"
ROLES = frozenset({"system", "developer", "user", ASSISTANT, "tool"})


@dataclass(frozen=True)
class TokenColumns:
    """Token ids `[T]` and their loss mask `[T]` (1: trained), as the record held them."""

    input_ids: Sequence[int]
    loss_mask: Sequence[int]


@dataclass(frozen=True)
class Conversation:
    """One record of a prompt source. Exactly one of `messages` and `tokens` is given.

    `conversation_id` is shared by the pieces of one conversation: splits go by it.
    """

    source: str
    conversation_id: str
    messages: tuple[Message, ...] | None = None
    tokens: TokenColumns | None = None
    tools: tuple[dict[str, Any], ...] | None = None
