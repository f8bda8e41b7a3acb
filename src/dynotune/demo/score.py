"""Exact-match accuracy by greedy generation: an answer counts when every letter is right and it ends where it should."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dynotune.demo.task import LONGEST, Item

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

BATCH = 50


@dataclass(frozen=True, slots=True)
class Score:
    """What a model answered to each item, in the items' order."""

    items: list[Item]
    answers: list[str]
    """As generated, up to and without the end token; an answer that did not end carries its length's worth of letters."""

    @property
    def right(self) -> int:
        return sum(answer == item.answer for item, answer in zip(self.items, self.answers, strict=True))

    @property
    def preferred(self) -> int:
        return sum(answer == item.preferred for item, answer in zip(self.items, self.answers, strict=True))

    def of(self, verb: str) -> "Score":
        """The items of one verb alone that the preference can tell apart."""
        both = zip(self.items, self.answers, strict=True)
        kept = [(item, answer) for item, answer in both if item.verb == verb and item.tells_apart]
        return Score([item for item, _ in kept], [answer for _, answer in kept])

    @property
    def accuracy(self) -> float:
        return self.right / len(self.items)


def score(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", items: Sequence[Item]) -> Score:
    """Ask `model` every item. Leaves the model's training mode and the tokenizer as they were."""
    training, side = model.training, tokenizer.padding_side
    model.eval()
    tokenizer.padding_side = "left"  # so that every answer of a batch begins behind its question
    try:
        answers = [
            answer
            for start in range(0, len(items), BATCH)
            for answer in _answers(model, tokenizer, items[start : start + BATCH])
        ]
    finally:
        tokenizer.padding_side = side
        model.train(training)
    return Score(list(items), answers)


def _answers(model: Any, tokenizer: "PreTrainedTokenizerBase", items: Sequence[Item]) -> list[str]:
    import torch

    questions = [item.row()["messages"][:1] for item in items]
    batch: Any = tokenizer.apply_chat_template(
        questions, add_generation_prompt=True, padding=True, return_dict=True, return_tensors="pt"
    )
    with torch.no_grad():
        ids = model.generate(
            **batch.to(model.device),
            do_sample=False,
            max_new_tokens=LONGEST + 2,
            use_cache=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    texts: list[str] = tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=False)
    return [_until_end(text, tokenizer) for text in texts]


def _until_end(text: str, tokenizer: "PreTrainedTokenizerBase") -> str:
    end = str(tokenizer.eos_token)
    # Without its end the answer is not right, even where its letters are: keep something that cannot match.
    return text.split(end, 1)[0] if end in text else f"{text}..."
