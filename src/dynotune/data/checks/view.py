"""A row as the checks see it: turns and texts, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dynotune.data.rows import Message, Row


@dataclass
class View:
    """`turns` is empty for plain text and pre-tokenised rows. Prompt and completion as text are a user's and an
    assistant's turn."""

    row: Row

    @cached_property
    def turns(self) -> list[Message]:
        row = self.row
        if row.messages is not None:
            return row.messages
        if isinstance(row.prompt, str):
            return [{"role": "user", "content": row.prompt}, {"role": "assistant", "content": row.completion}]
        if row.prompt is not None and isinstance(row.completion, list):
            return [*row.prompt, *row.completion]
        return []

    @cached_property
    def roles(self) -> list[str]:
        return [turn["role"] for turn in self.turns]

    @cached_property
    def texts(self) -> list[str]:
        """Every text that is trained on or read as context."""
        if self.row.text is not None:
            return [self.row.text]
        return [turn["content"] for turn in self.turns if turn.get("content")]

    @cached_property
    def size(self) -> int:
        """Characters."""
        return sum(map(len, self.texts))

    def answers(self) -> Iterator[Message]:
        return (turn for turn in self.turns if turn["role"] == "assistant")


def makes_calls(turn: Message) -> bool:
    """Whether a turn calls tools or thinks, so that it may have no content."""
    return any(turn.get(key) for key in ("tool_calls", "function_call", "reasoning_content", "thinking", "reasoning"))


def call_arguments(turn: Message) -> Iterator[Any]:
    """The arguments of every tool call of a turn. Calls of another shape are the template's to refuse."""
    calls = turn.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function", call) if isinstance(call, dict) else None
        if isinstance(function, dict) and "arguments" in function:
            yield function["arguments"]
