"""Preference rows: a prompt with a chosen and a rejected answer, in every form that other trainers write them.

Where the prompt stands in no column of its own it is what both answers begin with (TRL's implicit prompt).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from dynotune.data.formats.alpaca import alpaca_messages, alpaca_text
from dynotune.data.formats.messages import RefusedError, is_chat, normal_messages, text_of
from dynotune.data.formats.preference_repeated import text_once, turns_once
from dynotune.data.formats.preference_text import is_transcript, shared_beginning, transcript_sides
from dynotune.data.formats.preference_unrecognised import asking_column, prompt_elsewhere
from dynotune.data.rows import Message, Record, Row
from dynotune.printable import printable

Values = Mapping[str, Any]
Side = str | list[Message]

SIDES = ("chosen", "rejected")

_CALLS = ("tool_calls", "function_call", "reasoning_content", "thinking", "reasoning")
"""Keys by which an assistant turn says something without content."""


class Conversion(Protocol):
    """A record with the columns of its format to a row in normal form. Raises `RefusedError`."""

    def __call__(self, record: Record, *, has_chat_template: bool) -> Row: ...


def shape_of(values: Values) -> str | None:
    """The name of the preference format that columns have, or None. `values`: the columns that are not null."""
    if not all(side in values for side in SIDES):
        return None
    chat = any(_is_conversation(values[side]) for side in SIDES)
    if "prompt" in values:
        return "prompt-chosen-rejected" if chat or is_chat(values["prompt"]) else "prompt-chosen-rejected-text"
    for column in ("conversations", "messages", "instruction"):
        if column in values:
            return {"conversations": "sharegpt", "messages": "messages", "instruction": "alpaca"}[
                column
            ] + "-preference"
    if chat:
        return "implicit-prompt"
    return "hh-rlhf" if all(is_transcript(values[side]) for side in SIDES) else "implicit-prompt-text"


def _explicit(record: Record, *, has_chat_template: bool) -> Row:
    """`prompt`, `chosen` and `rejected`."""
    values, notices = record.values, list[str]()
    chat = [_is_conversation(values[side]) for side in SIDES]
    if chat[0] != chat[1]:
        raise RefusedError("sides-of-two-kinds", "of `chosen` and `rejected` one is text and the other is messages")
    prompt: Side
    if is_chat(values["prompt"]):
        prompt = normal_messages(values["prompt"], "prompt", notices)
    else:
        prompt = text_of(values["prompt"], "`prompt`", notices)
    if not chat[0]:
        chosen, rejected = (text_of(values[side], f"`{side}`", notices) for side in SIDES)
        if isinstance(prompt, str):
            chosen, rejected = text_once(prompt, chosen, rejected, notices)
            return _pair(record, prompt, chosen, rejected, notices)
        notices.append("answers-as-assistant-turns")
        return _turns_pair(record, prompt, _said("assistant", chosen), _said("assistant", rejected), notices)
    first, second = (_turns(values[side], side, notices) for side in SIDES)
    if isinstance(prompt, str):
        if (first[0]["role"], second[0]["role"]) != ("assistant", "assistant"):
            return _whole_conversations(record, prompt, first, second, notices)
        notices.append("prompt-as-user-turn")
        prompt = _said("user", prompt) if prompt else []
    return _turns_pair(record, prompt, first, second, notices)


def _implicit(record: Record, *, has_chat_template: bool) -> Row:
    """`chosen` and `rejected` as whole conversations."""
    values, notices = record.values, list[str]()
    if not all(_is_conversation(values[side]) for side in SIDES):
        raise RefusedError("sides-of-two-kinds", "of `chosen` and `rejected` one is text and the other is messages")
    chosen, rejected = (_turns(values[side], side, notices) for side in SIDES)
    return _parted(record, chosen, rejected, notices)


def _transcripts(record: Record, *, has_chat_template: bool) -> Row:
    """`chosen` and `rejected` as hh-rlhf writes them. They stay text, as in TRL."""
    prompt, chosen, rejected = transcript_sides(record.values["chosen"], record.values["rejected"])
    return _pair(record, prompt, chosen, rejected, [])


def _texts(record: Record, *, has_chat_template: bool) -> Row:
    """`chosen` and `rejected` as text that begins with the prompt."""
    notices: list[str] = []
    chosen, rejected = (text_of(record.values[side], f"`{side}`", notices) for side in SIDES)
    for side, text in zip(SIDES, (chosen, rejected), strict=True):
        if not text:
            raise RefusedError(f"empty-{side}", f"`{side}` is empty")
    _refuse_equal(chosen, rejected)
    if column := asking_column(record.values):  # what both texts begin with is then no prompt, or one of two
        raise RefusedError("missing-prompt", f"the row has no `prompt`. {prompt_elsewhere(column)}")
    end = shared_beginning(chosen, rejected, notices)
    return _pair(record, chosen[:end], chosen[end:], rejected[end:], notices)


def _sharegpt(record: Record, *, has_chat_template: bool) -> Row:
    """`conversations` (or `messages`) as the prompt, with `system`, and an answer in each of `chosen` and `rejected`, as
    LLaMA-Factory has it: one turn with `from` and `value`."""
    values, notices = record.values, list[str]()
    column = "conversations" if "conversations" in values else "messages"
    prompt = normal_messages(values[column], column, notices)
    system = values.get("system")
    if isinstance(system, str) and system and prompt[0]["role"] != "system":
        prompt[:0] = _said("system", system)
    sides = [
        _turns(values[side], side, notices)
        if _is_conversation(values[side])
        else _said("assistant", text_of(values[side], f"`{side}`", notices))
        for side in SIDES
    ]
    if column == "conversations":  # in this format these names are the rule and not remarkable
        notices = [name for name in notices if name != "sharegpt-role-names"]
    return _turns_pair(record, prompt, sides[0], sides[1], notices)


def _alpaca(record: Record, *, has_chat_template: bool) -> Row:
    """`instruction`, `input`, `system` and `history` with answers as text, as LLaMA-Factory has it."""
    notices: list[str] = []
    for side in SIDES:
        text_of(record.values[side], f"`{side}`", [])  # an error names the column that it is about
    asked = [record.values.get(column) for column in ("instruction", "input")]
    if not any(text_of(text, "`instruction` or `input`", []).strip() for text in asked if text is not None):
        raise RefusedError("empty-prompt", "`instruction` and `input` are empty: the answers answer nothing")
    both = [{**record.values, "output": record.values[side]} for side in SIDES]
    if has_chat_template:
        (prompt, chosen), (_, rejected) = (alpaca_messages(values, notices) for values in both)
        return _pair(record, prompt, chosen, rejected, list(dict.fromkeys(notices)))
    (text, first), (_, second) = (alpaca_text(values, notices) for values in both)
    return _pair(record, text, first, second, list(dict.fromkeys(notices)))


PREFERENCE_FORMATS: dict[str, Conversion] = {
    "prompt-chosen-rejected": _explicit,
    "prompt-chosen-rejected-text": _explicit,
    "sharegpt-preference": _sharegpt,
    "messages-preference": _sharegpt,
    "alpaca-preference": _alpaca,
    "implicit-prompt": _implicit,
    "hh-rlhf": _transcripts,
    "implicit-prompt-text": _texts,
}
"""The conversion of each format that `shape_of` names."""

PREFERENCE_NAMES = {
    "prompt-chosen-rejected": "prompt, chosen and rejected as messages",
    "prompt-chosen-rejected-text": "prompt, chosen and rejected as text",
    "sharegpt-preference": "ShareGPT conversations with a chosen and a rejected answer",
    "messages-preference": "messages with a chosen and a rejected answer",
    "alpaca-preference": "Alpaca with a chosen and a rejected answer",
    "implicit-prompt": "chosen and rejected as conversations, which begin with the prompt",
    "hh-rlhf": "hh-rlhf transcripts",
    "implicit-prompt-text": "chosen and rejected as text, where the prompt is what both begin with",
}
"""What each format is called when it is said what was recognised."""


def _is_conversation(value: Any) -> bool:
    """A list of messages, or one message alone."""
    return is_chat(value) or isinstance(value, Mapping)


def _turns(value: Any, side: str, notices: list[str]) -> list[Message]:
    return normal_messages([value] if isinstance(value, Mapping) else value, side, notices)


def _said(role: str, text: str) -> list[Message]:
    return [{"role": role, "content": text}]


def _parted(record: Record, chosen: list[Message], rejected: list[Message], notices: list[str]) -> Row:
    """The row whose prompt is what both conversations begin with, as TRL parts them: never all of the shorter one."""
    for side, turns in (("chosen", chosen), ("rejected", rejected)):
        _refuse_end(turns, side)
    _refuse_equal(chosen, rejected)
    shorter = min(len(chosen), len(rejected))
    shared = next((turn for turn in range(shorter) if chosen[turn] != rejected[turn]), shorter - 1)
    for side, turns in (("chosen", chosen), ("rejected", rejected)):
        if turns[shared]["role"] != "assistant":
            role = printable(turns[shared]["role"], 40)
            detail = (
                f"`chosen` and `rejected` part at turn {shared + 1}, which in `{side}` is no answer but of '{role}'"
            )
            raise RefusedError("prompts-differ", f"{detail}: they answer different prompts")
    if not shared:
        column = asking_column(record.values)
        remedy = prompt_elsewhere(column) if column else "Give what they answer in a column `prompt`"
        raise RefusedError("missing-prompt", f"`chosen` and `rejected` hold answers alone. {remedy}")
    return _pair(record, chosen[:shared], chosen[shared:], rejected[shared:], notices)


def _whole_conversations(
    record: Record, prompt: str, chosen: list[Message], rejected: list[Message], notices: list[str]
) -> Row:
    """Whole conversations beside a `prompt` that repeats one of their turns as text, as UltraFeedback has them."""
    row = _parted(record, chosen, rejected, notices)
    assert isinstance(row.prompt, list)
    if not any(str(turn.get("content")).strip() == prompt.strip() for turn in row.prompt):
        detail = (
            f"`prompt` ({printable(prompt, 40)}) is no turn of what the conversations in `chosen` and `rejected` share"
        )
        raise RefusedError("prompt-not-in-conversation", f"{detail}. Remove the column, or mend it")
    return row


def _turns_pair(
    record: Record, prompt: list[Message], chosen: list[Message], rejected: list[Message], notices: list[str]
) -> Row:
    """A prompt of messages in a column of its own, beside answers or whole conversations."""
    for side, turns in (("chosen", chosen), ("rejected", rejected)):
        _refuse_end(turns, side)
    return _pair(record, *turns_once(prompt, chosen, rejected, notices), notices)


def _pair(record: Record, prompt: Side, chosen: Side, rejected: Side, notices: list[str]) -> Row:
    """The row in normal form. Raises `RefusedError` for what makes a pair useless whatever its format."""
    if not (prompt.strip() if isinstance(prompt, str) else any(_says_something(turn) for turn in prompt)):
        raise RefusedError("empty-prompt", "the prompt is empty: there is nothing that the answers answer")
    for column, side in zip(SIDES, (chosen, rejected), strict=True):
        if isinstance(side, list):
            _refuse_end(side, column)
        if not (side.strip() if isinstance(side, str) else _says_something(side[-1])):
            raise RefusedError(f"empty-{column}", f"the answer in `{column}` is empty")
    _refuse_equal(chosen, rejected)
    if any(turn["role"] == "user" for side in (chosen, rejected) if isinstance(side, list) for turn in side):
        notices.append("user-turn-in-answer")  # trained on like the answer's own, as in TRL
    if "margin" in record.values:
        margin = record.values["margin"]
        number = isinstance(margin, int | float) and not isinstance(margin, bool) and math.isfinite(margin)
        notices.append("margin-not-used" if number else "margin-not-a-number")
    return Row(record.place, "pair", prompt=prompt, chosen=chosen, rejected=rejected, notices=notices)


def _refuse_end(turns: list[Message], side: str) -> None:
    role = turns[-1]["role"]
    if role != "assistant":
        detail = f"`{side}` ends with the turn of '{printable(role, 40)}'; it must end with an answer of the assistant"
        raise RefusedError(f"{side}-ends-wrongly", detail)


def _refuse_equal(chosen: Side, rejected: Side) -> None:
    if chosen == rejected:
        raise RefusedError("chosen-equals-rejected", "`chosen` and `rejected` are the same: nothing is preferred")


def _says_something(turn: Message) -> bool:
    return bool(str(turn.get("content") or "").strip()) or any(turn.get(key) for key in _CALLS)
