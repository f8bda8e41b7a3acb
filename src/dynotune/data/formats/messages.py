"""Lists of messages: what is accepted, what is mended and said, what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dynotune.data.rows import Message, Row
from dynotune.printable import printable

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})

SHAREGPT_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "observation": "tool",
    "function_response": "tool",
    "function_call": "assistant",
}
"""ShareGPT's names for roles. `function_call` is an assistant turn whose value is the call as JSON."""

_CALLS = ("tool_calls", "function_call", "reasoning_content", "thinking", "reasoning")
"""Keys that let an assistant turn go without content."""

_TRAINING_KEYS = frozenset({"weight", "train", "train_detail", "loss"})
"""Keys by which other trainers choose the turns that are trained on. Here the loss mask is the configuration's."""


class RefusedError(Exception):
    """A row that cannot become a training example: `reason` is the ledger's name for it, `detail` a sentence."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def normal_messages(value: Any, column: str, notices: list[str]) -> list[Message]:
    """A list of messages with `role` and `content`, from `value`, the column's content.

    Other keys of a message are kept, since templates read them. Role names in another spelling and content in text
    parts are brought into the usual form, each with a notice. Raises `RefusedError`.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = _from_json(value, column)
        notices.append(f"{column}-as-json-text")
    if value is None:
        raise RefusedError(f"{column}-null", f"`{column}` is null")
    if isinstance(value, Mapping):
        raise RefusedError(f"{column}-dict", f"`{column}` must be a list of messages, and this is one object")
    if not isinstance(value, list | tuple):
        shown = printable(str(value), 60)
        raise RefusedError(f"{column}-not-a-list", f"`{column}` must be a list of messages, and this is '{shown}'")
    if not value:
        raise RefusedError(f"empty-{column}", f"`{column}` has no messages")
    return [
        dict(item) if _is_normal(item) else _normal_message(item, f"{column}[{index}]", notices)
        for index, item in enumerate(value)
    ]


def is_chat(value: Any) -> bool:
    """Messages, or something that was meant to be; a list of content parts is text."""
    if not isinstance(value, list) or not value:
        return isinstance(value, list)
    return not (isinstance(value[0], Mapping) and "type" in value[0] and "role" not in value[0])


def text_of(value: Any, where: str, notices: list[str]) -> str:
    """`value` as text: a string, or a list of text parts. Raises `RefusedError` for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _joined(value, where, notices)
    kinds = {bool: "bool", int: "int", float: "float", dict: "dict", type(None): "null"}
    kind = kinds.get(type(value), type(value).__name__)
    raise RefusedError(f"content-{kind}", f"{where} must be text, and this is {printable(repr(value), 60)}")


def normal_tools(value: Any) -> list[Any] | None:
    """The `tools` column: a list of schemas, or such a list as JSON text. None where there are none."""
    if isinstance(value, str):
        value = _from_json(value, "tools") if value.strip() else None
    if value is None or value == []:
        return None
    if not isinstance(value, list):
        raise RefusedError("tools-not-a-list", f"`tools` must be a list, and this is {type(value).__name__}")
    return value


def fill_null_content(row: Row) -> bool:
    """Give turns without content an empty text, in place, with a notice. False if the row has none."""
    filled = False
    for messages in (row.messages, row.prompt, row.completion, row.chosen, row.rejected):
        for message in messages if isinstance(messages, list) else ():
            if message.get("content") is None:
                message["content"] = ""
                filled = True
    if filled:
        row.notices.append("null-content-as-empty")
    return filled


def _is_normal(item: Any) -> bool:
    """Whether there is nothing to mend and nothing to say, as about most messages."""
    if type(item) is not dict:
        return False
    role = item.get("role")
    return type(role) is str and role in ROLES and type(item.get("content")) is str and _TRAINING_KEYS.isdisjoint(item)


def _normal_message(item: Any, where: str, notices: list[str]) -> Message:
    if not isinstance(item, Mapping):
        detail = f"{where} must be an object with role and content, and this is {printable(repr(item), 60)}"
        raise RefusedError("message-is-not-an-object", detail)
    message = dict(item)
    for ours, theirs in (("role", "from"), ("content", "value")):
        if ours not in message and theirs in message:
            message[ours] = message.pop(theirs)
    role = message.get("role")
    if role is None:
        raise RefusedError("missing-role", f"{where} has no role")
    if not isinstance(role, str):
        raise RefusedError("role-not-a-string", f"the role of {where} is {printable(repr(role), 60)}")
    if not _TRAINING_KEYS.isdisjoint(message):
        notices.append("per-message-training-key-ignored")
    message["role"] = _normal_role(role, message, where, notices)
    may_be_silent = any(message.get(key) for key in _CALLS)
    if message.get("content") is None and may_be_silent:
        return message
    if "content" not in message:
        raise RefusedError("missing-content", f"{where} has no content")
    message["content"] = text_of(message["content"], f"the content of {where}", notices)
    return message


def _normal_role(role: str, message: Message, where: str, notices: list[str]) -> str:
    if role in ROLES:
        return role
    name = role.strip().lower()
    if name == "function_call" and isinstance(message.get("content"), str):
        message["tool_calls"] = _calls_from_text(message.pop("content"), where)
        message["content"] = ""
    if name in SHAREGPT_ROLES:
        notices.append("sharegpt-role-names")
        return SHAREGPT_ROLES[name]
    if name in ROLES:
        notices.append("role-case")
        return name
    # A template may know it; if it does not, it says so when the row is rendered.
    notices.append("unknown-role")
    return role


def _calls_from_text(text: str, where: str) -> list[dict[str, Any]]:
    """ShareGPT's call (`{"name": ..., "arguments": {...}}`, or a list of them) as `tool_calls`."""
    call = _from_json(text, f"{where} (a function_call)", "tool-arguments-not-json")
    calls = call if isinstance(call, list) else [call]
    if not all(isinstance(one, dict) and "name" in one for one in calls):
        raise RefusedError("tool-call-without-name", f"{where} is a function_call that names no function")
    return [
        {"type": "function", "function": {"name": one["name"], "arguments": one.get("arguments", {})}} for one in calls
    ]


def _joined(parts: list[Any], where: str, notices: list[str]) -> str:
    """The text of content parts. As chat templates do, one part follows the other with nothing between."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            raise RefusedError(
                "content-list-of-strings",
                f"{where} is a list of bare strings; give one string, or parts such as {{type: text, text: ...}}",
            )
        if not (isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise RefusedError(
                "content-part-not-text", f"{where} has a part of type {printable(str(kind), 40)}; only text is trained"
            )
        texts.append(part["text"])
    notices.append("content-parts")
    return "".join(texts)


def _from_json(text: str, what: str, reason: str | None = None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        name = reason or f"{what}-not-json"
        raise RefusedError(
            name, f"{what} is text that should be JSON and is not: {printable(str(error), 100)}"
        ) from error
