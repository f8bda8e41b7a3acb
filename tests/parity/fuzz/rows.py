"""Random rows of every form that TRL reads, with what trips a tokenizer or a template now and then."""

import json
import random
from collections.abc import Callable
from typing import Any

from tests.tiny import CORPUS

Row = dict[str, Any]
WORDS = " ".join(CORPUS).split()
ODD = ["", " ", "é ü 中文 🙂", "two\n\nlines ", " leading", "trailing ", "a<eos>", "<|user|> x", "x" * 40]
FUNCTION = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "sum",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}


def words(r: random.Random) -> str:
    return " ".join(r.choice(WORDS) for _ in range(r.randint(1, 12)))


def text_of(r: random.Random) -> str:
    return words(r) if r.random() < 0.85 else r.choice(ODD)


def texts(r: random.Random, n: int) -> list[Row]:
    return [{"text": (text_of(r) or words(r)) + r.choice(["", "", "", "<eos>"])} for _ in range(n)]


def prompts(r: random.Random, n: int) -> list[Row]:
    ends = ["", "", ":", " ", "\n"]
    return [{"prompt": text_of(r) + r.choice(ends), "completion": r.choice(["", " "]) + text_of(r)} for _ in range(n)]


def conversation(r: random.Random) -> list[Row]:
    messages = [{"role": "system", "content": text_of(r)}] if r.random() < 0.3 else []
    for _ in range(r.choice([1, 1, 2, 3])):
        messages += [{"role": "user", "content": text_of(r)}, {"role": "assistant", "content": text_of(r)}]
    return messages


def chats(r: random.Random, n: int) -> list[Row]:
    return [{"messages": conversation(r)} for _ in range(n)]


def sharegpt(r: random.Random, n: int) -> list[Row]:
    return [{"conversations": [{"from": m["role"], "value": m["content"]} for m in conversation(r)]} for _ in range(n)]


def answered(r: random.Random, n: int) -> list[Row]:
    """Prompt and completion as messages."""
    return [
        {"prompt": conversation(r)[:-1], "completion": [{"role": "assistant", "content": text_of(r)}]} for _ in range(n)
    ]


def tools(r: random.Random, n: int) -> list[Row]:
    rows = []
    as_text = r.random() < 0.5
    for _ in range(n):
        messages: list[Row] = [{"role": "user", "content": words(r)}]
        if r.random() < 0.7:
            call = {"type": "function", "function": {"name": "add", "arguments": {"a": r.randint(0, 9)}}}
            said = {"content": words(r)} if r.random() < 0.5 else {}
            messages += [{"role": "assistant", "tool_calls": [call], **said}]
            messages += [{"role": "user", "content": str(r.randint(0, 99))}]
        messages += [{"role": "assistant", "content": words(r)}]
        rows.append({"messages": messages, "tools": json.dumps([FUNCTION]) if as_text else [FUNCTION]})
    return rows


def variables(r: random.Random, n: int) -> list[Row]:
    return [{"messages": conversation(r), "chat_template_kwargs": {"mood": r.choice(["a", "bc"])}} for _ in range(n)]


def ids(r: random.Random, n: int) -> list[Row]:
    return [{"input_ids": [r.randint(5, 330) for _ in range(r.randint(2, 40))]} for _ in range(n)]


def labelled(r: random.Random, n: int) -> list[Row]:
    rows = ids(r, n)
    for row in rows:
        row["labels"] = [-100, *(i if r.random() < 0.6 else -100 for i in row["input_ids"][1:-1]), row["input_ids"][-1]]
    return rows


def masked(r: random.Random, n: int) -> list[Row]:
    rows = ids(r, n)
    for row in rows:
        cut = r.randint(1, len(row["input_ids"]) - 1)
        row["completion_mask"] = [int(i >= cut) for i in range(len(row["input_ids"]))]
    return rows


def spoken(r: random.Random, n: int) -> list[Row]:
    """Tokens with a mask of what the assistant says."""
    rows = ids(r, n)
    for row in rows:
        row["assistant_masks"] = [0, *(r.choice([0, 1]) for _ in row["input_ids"][1:-1]), 1]
    return rows


def answered_by_tools(r: random.Random, n: int) -> list[Row]:
    """Prompt and completion as messages, with tools and variables of the template."""
    rows = answered(r, n)
    for row in rows:
        row["tools"], row["chat_template_kwargs"] = [FUNCTION], {"mood": r.choice(["a", "bc"])}
    return rows


FORMS: dict[str, Callable[[random.Random, int], list[Row]]] = {
    "text": texts,
    "prompt": prompts,
    "messages": chats,
    "conversations": sharegpt,
    "answered": answered,
    "tools": tools,
    "variables": variables,
    "ids": ids,
    "labelled": labelled,
    "masked": masked,
    "spoken": spoken,
    "answered by tools": answered_by_tools,
}
TEXTUAL = ("text", "prompt", "messages", "answered")
"""Those that any tokenizer takes."""


def rows_of(form: str, r: random.Random, n: int) -> list[Row]:
    """With other columns beside, at times, which nobody reads."""
    rows = FORMS[form](r, n)
    if r.random() < 0.2:
        for i, row in enumerate(rows):
            row["id"], row["source"] = i, r.choice(["web", None])
    return rows
