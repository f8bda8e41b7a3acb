"""Preference data as bare text: where the prompt ends that two transcripts share."""

from __future__ import annotations

import re
from typing import Any

from dynotune.data.formats.messages import RefusedError

HUMAN, ASSISTANT = "\n\nHuman:", "\n\nAssistant:"
"""How hh-rlhf (arXiv 2204.05862) marks turns. An answer begins behind the last `ASSISTANT`, with a space."""


def is_transcript(value: Any) -> bool:
    """Whether a text is a dialogue as hh-rlhf writes it."""
    return isinstance(value, str) and value.lstrip("\n").startswith("Human:") and ASSISTANT in value


def transcript_sides(chosen: str, rejected: str) -> tuple[str, str, str]:
    """Prompt, chosen and rejected answer of two transcripts that are the same up to their last answer.

    TRL takes all that both begin with as the prompt, and with it the beginning of two answers that begin alike; here an
    answer begins behind its marker, whatever the other one is. Raises `RefusedError`.
    """
    prompts, answers = [], []
    for column, text in (("chosen", chosen), ("rejected", rejected)):
        before, marker, answer = text.rpartition(ASSISTANT)
        if HUMAN in answer:
            detail = f"the transcript in `{column}` ends with a turn of Human; it must end with an answer of Assistant"
            raise RefusedError(f"{column}-ends-wrongly", detail)
        if not answer.strip():
            raise RefusedError(f"empty-{column}", f"the last answer in `{column}` is empty")
        prompts.append(before + marker)
        answers.append(answer)
    if prompts[0] != prompts[1]:
        detail = (
            "the transcripts in `chosen` and `rejected` differ before their last answer: they answer different prompts"
        )
        raise RefusedError("prompts-differ", detail)
    if not re.sub("^(Human|Assistant):", "", prompts[0], flags=re.MULTILINE).strip():
        raise RefusedError("empty-prompt", "the transcripts in `chosen` and `rejected` hold nothing but their answers")
    return prompts[0], answers[0], answers[1]


def shared_beginning(chosen: str, rejected: str, notices: list[str]) -> int:
    """Characters of the prompt that two texts begin with, cut where TRL's `extract_prompt` cuts: before the space that both
    may have in front of their answers, and, where one text is the beginning of the other, before its last character.

    Raises `RefusedError` where they share nothing but space.
    """
    shorter = min(len(chosen), len(rejected))
    low, high = 0, shorter
    while low < high:
        middle = (low + high + 1) // 2
        if chosen[:middle] == rejected[:middle]:
            low = middle
        else:
            high = middle - 1
    if low == shorter:
        end = shorter - 1
    else:
        end = low - 1 if chosen[:low].endswith(" ") else low
        if f"{chosen[:low][-1:]}{chosen[low]}{rejected[low]}".isalnum():
            notices.append("prompt-ends-inside-a-word")
    if not chosen[:end].strip():
        detail = (
            "`chosen` and `rejected` share no beginning but space, so they hold no prompt; give it in a column `prompt`"
        )
        raise RefusedError("missing-prompt", detail)
    return end
