"""Preference data for tests."""

from typing import Any


def pair_of(prompt: str, chosen: str, rejected: str, **more: Any) -> dict[str, Any]:
    """A row in TRL's form, as messages."""
    user = [{"role": "user", "content": prompt}]
    return {"prompt": user, "chosen": _answer(chosen), "rejected": _answer(rejected), **more}


def _answer(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]
