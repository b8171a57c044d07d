"""From a record to a `Conversation`: what each format's fields mean.

tokens     `input_ids` + `loss_mask`
messages   `messages` (or `conversations` whose turns have a `role`), OpenAI's way
sharegpt   `conversations` of `from` and `value`
prompt     `prompt` (+ `response` or `completion`), strings or lists of messages
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from datagen.prompts.conversation import ASSISTANT, ROLES, Conversation, Message, TokenColumns
from datagen.prompts.errors import RefusedRecord
from datagen.prompts.settings import Format, PromptSettings
from datagen.prompts.stats import speakable
from schemas.record import canonical_json

SHAREGPT_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": ASSISTANT,
    "assistant": ASSISTANT,
    "chatgpt": ASSISTANT,
    "bing": ASSISTANT,
    "bard": ASSISTANT,
    "system": "system",
    "tool": "tool",
    "function_response": "tool",
}
EXTRAS = ("name", "tool_calls", "tool_call_id", "reasoning_content", "thinking")
"""What else of a message reaches the template; other fields (weights, dates, scores) are not its business."""

PIECE_SUFFIX = re.compile(r"_\d+$")
"""ShareGPT's pieces of one conversation are `abc_0`, `abc_12`: the conversation's id stands before."""

Record = dict[str, Any]


def conversation(record: Record, source: str, settings: PromptSettings) -> Conversation:
    """Return what a record says; raises `RefusedRecord` when it says nothing that is understood."""
    kind = settings.format if settings.format != "auto" else detected(record)
    if kind == "tokens":
        tokens = _tokens(record)
        opening = tokens.input_ids[: _first_trained(tokens)]
        return Conversation(
            source, _conversation_id(record, kind, settings, lambda: list(opening)), tokens=tokens
        )
    messages = {"messages": _messages, "sharegpt": _sharegpt, "prompt": _prompt}[kind](record)
    if not messages:
        raise RefusedRecord("empty", "expected at least one turn, got none")
    tools = _parsed_if_text(record.get("tools"))
    return Conversation(
        source,
        _conversation_id(record, kind, settings, lambda: _first_user(messages)),
        messages=tuple(messages),
        tools=tuple(tools) if isinstance(tools, list) and tools else None,
    )


def detected(record: Record) -> Format:
    """Return the format of a record by its fields; raises `RefusedRecord` when it has those of none."""
    present = {name for name, value in record.items() if value is not None}
    if {"input_ids", "loss_mask"} <= present:
        return "tokens"
    if "messages" in present:
        return "messages"
    if "conversations" in present:
        turns = record["conversations"]
        has_role = isinstance(turns, list) and turns and isinstance(turns[0], dict) and "role" in turns[0]
        return "messages" if has_role else "sharegpt"
    if "prompt" in present:
        return "prompt"
    raise RefusedRecord(
        "unreadable_record",
        "expected messages, conversations, prompt, or input_ids with loss_mask, "
        f"got {', '.join(sorted(map(str, present))) or 'no fields'}",
    )


def _messages(record: Record) -> list[Message]:
    name = "messages" if record.get("messages") is not None else "conversations"
    return [_message(turn, f"{name}[{at}]") for at, turn in enumerate(_list(record, name))]


def _sharegpt(record: Record) -> list[Message]:
    messages = []
    for at, turn in enumerate(_list(record, "conversations")):
        where = f"conversations[{at}]"
        if not isinstance(turn, dict):
            raise _unreadable(where, "an object with from and value", type(turn).__name__)
        sender = turn.get("from")
        role = SHAREGPT_ROLES.get(sender.lower()) if isinstance(sender, str) else None
        if role is None:
            raise _unreadable(f"{where}.from", f"one of {', '.join(SHAREGPT_ROLES)}", repr(sender))
        if not isinstance(turn.get("value"), str):
            raise _unreadable(f"{where}.value", "a string", type(turn.get("value")).__name__)
        messages.append({"role": role, "content": turn["value"]})
    return messages


def _prompt(record: Record) -> list[Message]:
    if record.get("prompt") is None:
        raise _unreadable("prompt", "a string or a list of messages", "nothing")
    messages = _side(record["prompt"], "prompt", "user")
    for name in ("response", "completion"):
        if record.get(name) is not None:
            return messages + _side(record[name], name, ASSISTANT)
    return messages


def _side(value: Any, where: str, role: str) -> list[Message]:
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if isinstance(value, list):
        return [_message(turn, f"{where}[{at}]") for at, turn in enumerate(value)]
    raise _unreadable(where, "a string or a list of messages", type(value).__name__)


def _message(turn: Any, where: str) -> Message:
    if not isinstance(turn, dict):
        raise _unreadable(where, "an object with role and content", type(turn).__name__)
    role = turn.get("role")
    if not isinstance(role, str) or role.lower() not in ROLES:
        raise _unreadable(f"{where}.role", f"one of {', '.join(sorted(ROLES))}", repr(role))
    message: Message = {"role": role.lower(), "content": _content(turn.get("content"), where, turn)}
    for name in EXTRAS:
        if turn.get(name) is not None:
            message[name] = _tool_calls(turn[name]) if name == "tool_calls" else turn[name]
    if message.get("tool_calls") == []:
        del message["tool_calls"]
    return message


def _content(content: Any, where: str, turn: Record) -> str:
    """Return the text of a content; parts are joined by a newline, as vLLM does for text-only templates."""
    if isinstance(content, str):
        return content
    if content is None and turn.get("tool_calls"):
        return ""
    if not isinstance(content, list):
        raise _unreadable(f"{where}.content", "a string or a list of text parts", type(content).__name__)
    texts = []
    for part in content:
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
        kind = part.get("type", "text") if isinstance(part, dict) else "text"
        if kind != "text" or not isinstance(text, str):
            raise _unreadable(f"{where}.content", "text parts only", f"a part of type {kind!r}")
        texts.append(text)
    return "\n".join(texts)


def _tool_calls(calls: Any) -> Any:
    """Return tool calls with their arguments as objects: OpenAI writes JSON text, templates want objects."""
    if not isinstance(calls, list):
        return calls
    return [_tool_call(_without_none(call)) for call in calls]


def _tool_call(call: Any) -> Any:
    if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
        return call | {"function": function | {"arguments": _parsed_if_text(function.get("arguments"))}}
    return call


def _without_none(value: Any) -> Any:
    """Return `value` without fields that are `None`: Parquet fills in those that other rows have."""
    if isinstance(value, dict):
        return {name: _without_none(item) for name, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value


def _parsed_if_text(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _tokens(record: Record) -> TokenColumns:
    ids, mask = (_integers(record, name) for name in ("input_ids", "loss_mask"))
    if not ids:
        raise RefusedRecord("empty", "expected at least one token, got none")
    if len(ids) != len(mask):
        raise _unreadable("loss_mask", f"{len(ids)} values as input_ids", str(len(mask)))
    if wrong := set(mask) - {0, 1}:
        raise _unreadable("loss_mask", "0 or 1", str(min(wrong)))
    return TokenColumns(ids, mask)


def _integers(record: Record, name: str) -> list[int]:
    values = _list(record, name)
    for value in values:
        if not isinstance(value, int):
            raise _unreadable(name, "integers", repr(value))
    return [int(value) for value in values]


def _list(record: Record, name: str) -> list[Any]:
    value = record.get(name)
    if not isinstance(value, list):
        raise _unreadable(name, "a list", "nothing" if value is None else type(value).__name__)
    return value


def _unreadable(where: str, expected: str, got: str) -> RefusedRecord:
    return RefusedRecord("unreadable_record", f"{where}: expected {expected}, got {got}")


def _conversation_id(
    record: Record, kind: Format, settings: PromptSettings, opening: Callable[[], object]
) -> str:
    """Return the id that the pieces of a conversation share; without one, a hash of how it opens."""
    if named := settings.conversation_id_field:
        if record.get(named) is None:
            raise _unreadable(named, "a conversation id", "nothing")
        return speakable(str(record[named]))
    if record.get("conversation_id") is not None:
        return speakable(str(record["conversation_id"]))
    if record.get("id") is not None:
        own = speakable(str(record["id"]))
        return PIECE_SUFFIX.sub("", own) or own if kind == "sharegpt" else own
    return hashlib.sha256(canonical_json(opening())).hexdigest()[:32]


def _first_user(messages: Iterable[Message]) -> str:
    listed = list(messages)
    return str(next((turn for turn in listed if turn["role"] == "user"), listed[0])["content"])


def _first_trained(tokens: TokenColumns) -> int:
    """Return how many tokens stand before the first trained one, all where none is trained."""
    return next((at for at, trained in enumerate(tokens.loss_mask) if trained), len(tokens.loss_mask)) or 1
