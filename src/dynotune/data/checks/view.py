"""A row as the checks see it: turns and texts, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dynotune.data.rows import Message, Row

_INSTEAD = frozenset({"tool_calls", "function_call", "reasoning_content", "thinking", "reasoning"})


class View:
    """`turns` is empty for plain text and pre-tokenised rows. Prompt and completion as text are a user's and an
    assistant's turn. All of it is used for every row, so it is made at once."""

    __slots__ = ("roles", "row", "size", "texts", "turns")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.turns = _turns(row)
        self.roles: list[str] = [turn["role"] for turn in self.turns]
        self.texts: list[str] = [text for turn in self.turns if (text := turn.get("content"))]
        """Every text that is trained on or read as context."""
        if row.text is not None:
            self.texts = [row.text]
        self.size = sum(map(len, self.texts))
        """Characters."""

    def answers(self) -> Iterator[Message]:
        return (turn for turn in self.turns if turn["role"] == "assistant")


def makes_calls(turn: Message) -> bool:
    """Whether a turn calls tools or thinks, so that it may have no content."""
    return not _INSTEAD.isdisjoint(turn) and any(turn.get(key) for key in _INSTEAD)


def call_arguments(turn: Message) -> Iterator[Any]:
    """The arguments of every tool call of a turn. Calls of another shape are the template's to refuse."""
    calls = turn.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function", call) if isinstance(call, dict) else None
        if isinstance(function, dict) and "arguments" in function:
            yield function["arguments"]


def _turns(row: Row) -> list[Message]:
    if row.messages is not None:
        return row.messages
    if isinstance(row.prompt, str):
        return [{"role": "user", "content": row.prompt}, {"role": "assistant", "content": row.completion}]
    if row.prompt is not None and isinstance(row.completion, list):
        return [*row.prompt, *row.completion]
    return []
