"""The demo's task: sort or reverse the letters of a word. Words of the held-out items appear in no training item."""

import random
from dataclasses import dataclass
from typing import Any

LETTERS = "abcdefghij"
VERBS = ("sort", "reverse")
SHORTEST, LONGEST = 3, 5


@dataclass(frozen=True, slots=True)
class Item:
    verb: str
    word: str

    @property
    def question(self) -> str:
        return f"{self.verb} {self.word}"

    @property
    def answer(self) -> str:
        return "".join(sorted(self.word)) if self.verb == "sort" else self.word[::-1]

    def row(self) -> dict[str, Any]:
        """The item as a conversation."""
        return {
            "messages": [
                {"role": "user", "content": self.question},
                {"role": "assistant", "content": self.answer},
            ]
        }


def make_items(train: int, held_out: int, seed: int) -> tuple[list[Item], list[Item]]:
    """Training and held-out items, about evenly split between the verbs; no word is in both lists, no item twice."""
    rng = random.Random(seed)  # noqa: S311  (a task, not a secret)
    words: dict[str, None] = {}  # a set that keeps its order
    while len(words) < (train + held_out + 1) // 2 + 1:
        words["".join(rng.choices(LETTERS, k=rng.randint(SHORTEST, LONGEST)))] = None
    items = [Item(verb, word) for word in words for verb in VERBS]
    unseen, rest = items[:held_out], items[held_out + held_out % 2 :][:train]
    rng.shuffle(rest)
    return rest, unseen
