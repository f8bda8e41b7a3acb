"""Alpaca rows: `instruction`, `input`, `output`, and optionally `system` and `history`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynotune.data.formats.messages import RefusedError, text_of
from dynotune.data.rows import Message

# The prompt of Stanford Alpaca (github.com/tatsu-lab/stanford_alpaca), word for word: models are asked with it.
_WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.\n\n"
)
_WITHOUT_INPUT = (
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
)


def alpaca_messages(values: Mapping[str, Any], notices: list[str]) -> tuple[list[Message], list[Message]]:
    """Prompt and completion as messages, for a tokenizer with a chat template."""
    prompt: list[Message] = []
    if system := _text(values, "system", notices):
        prompt.append({"role": "system", "content": system})
    history = values.get("history") or []
    if not isinstance(history, list | tuple):
        raise RefusedError("history-not-pairs", "`history` must be a list of pairs of instruction and answer")
    for number, turn in enumerate(history):
        if not (isinstance(turn, list | tuple) and len(turn) == 2):
            raise RefusedError("history-not-pairs", f"history[{number}] must be a pair of instruction and answer")
        for role, text in zip(("user", "assistant"), turn, strict=True):
            prompt.append({"role": role, "content": text_of(text, f"history[{number}]", notices)})
    asked = [_text(values, "instruction", notices), _text(values, "input", notices)]
    prompt.append({"role": "user", "content": "\n".join(text for text in asked if text)})
    return prompt, [{"role": "assistant", "content": text_of(values["output"], "`output`", notices)}]


def alpaca_text(values: Mapping[str, Any], notices: list[str]) -> tuple[str, str]:
    """Prompt and completion as text, for a tokenizer without a chat template: Alpaca's own prompt."""
    for column in ("history", "system"):
        if values.get(column):
            detail = f"an Alpaca row with `{column}` needs a tokenizer with a chat template (`chat_template_path`)"
            raise RefusedError(f"{column}-needs-chat-template", detail)
    instruction, context = _text(values, "instruction", notices), _text(values, "input", notices)
    prompt = f"{_WITH_INPUT if context else _WITHOUT_INPUT}### Instruction:\n{instruction}\n\n"
    if context:
        prompt += f"### Input:\n{context}\n\n"
    prompt += "### Response:\n"
    return prompt, text_of(values["output"], "`output`", notices)


def _text(values: Mapping[str, Any], column: str, notices: list[str]) -> str:
    value = values.get(column)
    return "" if value is None else text_of(value, f"`{column}`", notices)
