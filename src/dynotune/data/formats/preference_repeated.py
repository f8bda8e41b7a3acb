"""A prompt in a column of its own that stands again in both answers: it is taken once."""

from __future__ import annotations

from dynotune.data.formats.messages import RefusedError
from dynotune.data.rows import Message

REPEATED = "prompt-repeated-in-answers"


def turns_once(
    prompt: list[Message], chosen: list[Message], rejected: list[Message], notices: list[str]
) -> tuple[list[Message], list[Message], list[Message]]:
    """Prompt, chosen and rejected, where the sides may be whole conversations that begin with the prompt.

    A prompt that ends with an answer is one conversation with it; where both sides begin with what is before it, that is
    the prompt, so that no answer is learned behind itself. Raises `RefusedError` where one side alone repeats the prompt,
    and where the prompt ends with one of the answers.
    """
    sides = (chosen, rejected)
    answered = bool(prompt) and prompt[-1]["role"] == "assistant"
    prompts = [prompt]
    if answered and any(turn["role"] == "user" for turn in prompt):
        prompts.append(prompt[:-1])
    for asked in prompts:
        behind = [_behind(asked, side) for side in sides]
        if behind[0] and behind[1]:
            notices.append(REPEATED)
            return asked, behind[0], behind[1]
    for asked in prompts:
        for column, other, side in (("chosen", "rejected", chosen), ("rejected", "chosen", rejected)):
            if _behind(asked, side):
                detail = f"`{column}` begins with the prompt's turns again and `{other}` does not"
                raise RefusedError("prompts-differ", f"{detail}. Give the prompt in both of them or in neither")
    if answered and prompt[-1] in (chosen[0], rejected[0]):
        detail = "the prompt ends with one of the two answers, so that it would be learned behind itself"
        raise RefusedError("answer-in-prompt", f"{detail}. Take the answer out of the prompt")
    return prompt, chosen, rejected


def text_once(prompt: str, chosen: str, rejected: str, notices: list[str]) -> tuple[str, str]:
    """Both answers, without the prompt if both begin with it.

    Where it ends in the middle of a word of an answer (`ha`, `haha`) it is no repetition. One answer alone may begin with
    the words of the prompt.
    """
    answers = [text.removeprefix(prompt) for text in (chosen, rejected) if text.startswith(prompt)]
    if not prompt.strip() or len(answers) < 2 or not all(answers):
        return chosen, rejected
    if any(f"{prompt[-1]}{answer[0]}".isalnum() for answer in answers):
        return chosen, rejected
    notices.append(REPEATED)
    return answers[0], answers[1]


def _behind(prompt: list[Message], side: list[Message]) -> list[Message]:
    """The turns behind the prompt, none where the side does not begin with it. A side may lack the prompt's `system`."""
    if prompt and side and prompt[0]["role"] == "system" != side[0]["role"]:
        prompt = prompt[1:]
    return side[len(prompt) :] if prompt and side[: len(prompt)] == prompt else []
