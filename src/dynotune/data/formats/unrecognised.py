"""What to tell the owner of a row that has no known format: the nearest guess, and the way out."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from dynotune.printable import printable

_KNOWN = ("messages", "conversations", "prompt", "completion", "text", "instruction", "output", "input_ids")

_PAIRS = (
    ("question", "answer"),
    ("question", "response"),
    ("query", "response"),
    ("query", "answer"),
    ("input", "output"),
    ("inputs", "targets"),
    ("source", "target"),
    ("prompt", "response"),
    ("prompt", "output"),
    ("prompt", "answer"),
    ("instruction", "response"),
    ("problem", "solution"),
)
"""Columns that are a prompt and a completion under other names."""

_PARTNERS = {"prompt": "completion", "completion": "prompt", "instruction": "output"}


def why_unrecognised(values: Mapping[str, Any], text_field: str) -> tuple[str, str]:
    """(reason, detail) for a row that fits no format."""
    if not values:
        return "empty-object", "the row has no columns"
    columns = [str(column) for column in values]
    listed = ", ".join(printable(column, 40) for column in columns)
    for column in ("messages", "conversations"):
        if column in values:
            return f"{column}-null", f"`{column}` is null"
    if "chosen" in values or "rejected" in values:
        return (
            "preference-row",
            f"this is preference data ({listed}); train on it with `dynotune dpo`, and give other commands `--method dpo`",
        )
    for prompt, completion in _PAIRS:
        if prompt in values and completion in values:
            mapping = f"columns: {{prompt: {prompt}, completion: {completion}}}"
            return "unrecognised-format", f"the row has the columns {listed}. Did you mean `{mapping}`?"
    if misspelt := _misspelt(columns, text_field):
        wrong, right = misspelt
        return "misspelt-key", f"the row has '{printable(wrong, 40)}'. Did you mean `{right}`?"
    for column, partner in _PARTNERS.items():
        if column in values:
            return f"missing-{partner}", f"the row has `{column}` but no `{partner}` (it has {listed})"
    for column, value in values.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            name = printable(str(column), 40)
            if {"role", "from"} & set(value[0]):
                detail = f"'{name}' looks like a conversation. Did you mean `columns: {{messages: {name}}}`?"
            else:
                detail = f"the rows seem to lie under '{name}'; give one row a line (`jq -c '.{name}[]'`)"
            return "unrecognised-format", detail
    return "unrecognised-format", (
        f"the row has the columns {listed}, which is none of: messages, conversations, prompt and completion, "
        f"{text_field}, instruction and output, input_ids. `columns:` maps other names to these"
    )


def _misspelt(columns: list[str], text_field: str) -> tuple[str, str] | None:
    for column in columns:
        name = column.strip().lower()
        known = [*_KNOWN, text_field]
        if column not in known and (near := get_close_matches(name, known, n=1, cutoff=0.8)):
            return column, near[0]
    return None
