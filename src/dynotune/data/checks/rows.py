"""What is remarkable about a row that trains. Each check is a function that names what it finds.

A finding is a *notice*: it is counted in the ledger and never stops or changes a row. To add one, write a function that
takes a `View` and yields names, and decorate it with `@check`. What a row must have in order to train is decided in
`formats`, `messages` and by the encoder; duplicates, which need memory of other rows, in `duplicates`; tokens and
characters inside texts in `text_checks`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise

from dynotune.data.checks.text_checks import ControlTokens, notices_of_texts
from dynotune.data.checks.view import View, call_arguments, makes_calls
from dynotune.data.formats.messages import ROLES

Check = Callable[[View], Iterator[str]]

CHECKS: list[Check] = []

HUGE_ROW = 100_000
"""Characters: some 25,000 tokens, more than most models are trained on at a time."""
HUGE_ANSWER = 100_000
MANY_TURNS = 1_000

_USUAL = (["user", "assistant"], ["system", "user", "assistant"])
"""Orders of roles with nothing to say about, which most rows have."""


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


def row_notices(view: View, control: ControlTokens) -> list[str]:
    """Names of all that is remarkable about a row, each once, with those it was given while it was read."""
    found = list(view.row.notices)
    for one in CHECKS:
        found += one(view)
    found += notices_of_texts(view.texts, control)
    return list(dict.fromkeys(found))


@check
def order_of_roles(view: View) -> Iterator[str]:
    roles = view.roles
    if roles in _USUAL:
        return
    spoken = [role for role in roles if role not in ("system", "developer")]
    if spoken and spoken[0] == "assistant" and "user" in spoken:
        yield "assistant-first"
    pairs = set(pairwise(roles))
    if ("user", "user") in pairs:
        yield "two-user-turns"
    if ("assistant", "assistant") in pairs:
        yield "two-assistant-turns"
    if any(after == "system" and before != "system" for before, after in pairs):
        yield "system-not-first"
    if roles.count("system") > 1:
        yield "two-system-turns"


@check
def missing_side(view: View) -> Iterator[str]:
    if not view.roles or view.roles in _USUAL:
        return
    roles = set(view.roles)
    if "assistant" not in roles and roles <= ROLES:
        yield "no-assistant-turn"
    if roles <= {"assistant", "system", "developer"}:
        yield "assistant-only"


@check
def ending(view: View) -> Iterator[str]:
    if not view.turns:
        return
    last = view.turns[-1]
    if last["role"] == "user" and "assistant" in view.roles:
        yield "ends-with-user"
    if last["role"] == "tool":
        yield "ends-with-tool-result"
    if last.get("tool_calls"):
        yield "ends-with-tool-call"


@check
def empty_turns(view: View) -> Iterator[str]:
    for turn in view.turns:
        content = turn.get("content") or ""
        visible = content.strip()
        if turn["role"] == "user" and not visible:
            yield "empty-user"
        if turn["role"] != "assistant" or makes_calls(turn):
            continue
        if not content:
            yield "empty-assistant"
            if turn is view.turns[-1]:
                yield "empty-final-assistant"
        elif not visible:
            yield "whitespace-assistant"
        elif not visible[0].isprintable() and not any(c.isprintable() and not c.isspace() for c in visible):
            # Zero-width characters are formatting characters (category Cf), which Python counts as unprintable.
            yield "invisible-assistant"


@check
def empty_text(view: View) -> Iterator[str]:
    if view.row.text is not None and not view.row.text.strip():
        yield "empty-text"


@check
def tool_calls(view: View) -> Iterator[str]:
    called = False
    for turn in view.turns:
        if turn["role"] == "tool" and not called:
            yield "tool-result-without-call"
        elif turn["role"] != "tool":
            called = bool(turn.get("tool_calls") or turn.get("function_call"))
        for arguments in call_arguments(turn) if "tool_calls" in turn else ():
            if isinstance(arguments, str) and not _is_json(arguments):
                yield "tool-arguments-not-json"


@check
def extreme_sizes(view: View) -> Iterator[str]:
    if len(view.turns) >= MANY_TURNS:
        yield "many-turns"
    if view.size >= HUGE_ROW:
        yield "huge-row"
    for turn in view.answers() if view.size >= HUGE_ANSWER else ():
        if len(turn.get("content") or "") >= HUGE_ANSWER:
            yield "huge-answer"
    if view.turns and view.turns[-1]["role"] == "assistant" and len((view.turns[-1].get("content") or "").strip()) == 1:
        yield "one-character-answer"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
