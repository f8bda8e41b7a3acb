"""What to tell the owner of a row that is no preference pair: what it lacks, the nearest guess, and the way out."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from dynotune.data.formats.messages import is_chat
from dynotune.printable import printable

_KNOWN = ("prompt", "chosen", "rejected")

_SIDES = (
    ("chosen_response", "rejected_response"),
    ("chosen_answer", "rejected_answer"),
    ("preferred", "dispreferred"),
    ("preferred", "rejected"),
    ("accepted", "rejected"),
    ("positive", "negative"),
    ("winner", "loser"),
    ("better", "worse"),
    ("good", "bad"),
    ("response_j", "response_k"),
)
"""Columns that are a chosen and a rejected answer under other names."""

_PROMPTS = ("prompt", "question", "query", "instruction", "input")

_UNUSUAL = frozenset({"messages", "conversations", "completion", "text", "output", "input_ids", "response", "answer"})
"""Columns of training data without a choice."""


def asking_column(values: Mapping[str, Any]) -> str | None:
    """The column that seems to be the prompt under another name, of a row without `prompt`. None where there is none.

    `values`: the columns that are not null.
    """
    for column, value in values.items():
        name = str(column).strip().lower()
        meant = name in _PROMPTS or get_close_matches(name, ("prompt",), cutoff=0.8)
        if meant and column != "prompt" and (value.strip() if isinstance(value, str) else is_chat(value) and value):
            return str(column)
    return None


def prompt_elsewhere(column: str) -> str:
    """What to do about it, as a sentence."""
    return f"The row has '{printable(column, 40)}'. Did you mean `columns: {{prompt: {printable(column, 40)}}}`?"


def why_no_pair(values: Mapping[str, Any]) -> tuple[str, str]:
    """(reason, detail) for a row without `chosen` and `rejected`. `values`: the columns that are not null."""
    if not values:
        return "empty-object", "the row has no columns"
    columns = [str(column) for column in values]
    listed = ", ".join(printable(column, 40) for column in columns)
    for chosen, rejected in _SIDES:
        if chosen in values and rejected in values and (chosen, rejected) != ("chosen", "rejected"):
            names = {"prompt": next((name for name in _PROMPTS if name in values), None)}
            names = {ours: name for ours, name in names.items() if name not in (None, "prompt", "instruction")}
            mapping = ", ".join(f"{a}: {b}" for a, b in {**names, "chosen": chosen, "rejected": rejected}.items())
            return "unrecognised-format", f"the row has the columns {listed}. Did you mean `columns: {{{mapping}}}`?"
    for column in columns:
        name = column.strip().lower()
        if (
            column not in _KNOWN
            and (near := get_close_matches(name, _KNOWN, n=1, cutoff=0.8))
            and near[0] not in values
        ):
            return "misspelt-key", f"the row has '{printable(column, 40)}'. Did you mean `{near[0]}`?"
    for column, other in (("rejected", "chosen"), ("chosen", "rejected")):
        if other in values:
            return f"missing-{column}", f"the row has `{other}` but no `{column}` (it has {listed})"
    if isinstance(values.get("label"), bool) and "completion" in values:
        detail = f"this row judges one answer (`label`); preference training needs two to the same prompt ({listed})"
        return "unpaired-preference", detail
    if _UNUSUAL & values.keys():
        detail = f"the row has no `chosen` and no `rejected` (it has {listed}); train on it with `dynotune sft`"
        return "not-a-preference", detail
    return "unrecognised-format", (
        f"the row has the columns {listed}, and not `chosen` and `rejected`, with or without `prompt`; `columns:` maps other"
        " names to these"
    )
