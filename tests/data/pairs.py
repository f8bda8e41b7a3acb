"""Preference data for tests: a configuration whose rows are pairs, and rows of words."""

from typing import Any, ClassVar

from dynotune.config.sft import SFTConfig


class PairsConfig(SFTConfig):
    """All that reading data asks a configuration for, with rows that are pairs."""

    per_example: ClassVar[int] = 2


def pair_of(prompt: str, chosen: str, rejected: str, **more: Any) -> dict[str, Any]:
    """A row in TRL's form, as messages."""
    user = [{"role": "user", "content": prompt}]
    return {"prompt": user, "chosen": _answer(chosen), "rejected": _answer(rejected), **more}


def _answer(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]
