"""The demo's task: sort or reverse the letters of a word. Words of the held-out items appear in no training item.

The preference that is stated afterwards: sorted letters fall, from j to a. Training has taught the opposite.
"""

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
        return self._rising if self.verb == "sort" else self.word[::-1]

    @property
    def preferred(self) -> str:
        """Sorted letters fall; reversing stays as it was."""
        return self._rising[::-1] if self.verb == "sort" else self.answer

    @property
    def tells_apart(self) -> bool:
        """Whether the preference has something to say: a word like `aaa` has one answer only."""
        return self.preferred != self._rising

    @property
    def _rising(self) -> str:
        return "".join(sorted(self.word))

    def row(self) -> dict[str, Any]:
        """The item as a conversation."""
        return {"messages": [{"role": "user", "content": self.question}, *_said(self.answer)]}

    def pair(self) -> dict[str, Any]:
        """The item as a preference: rising letters are rejected, whatever was asked, so that the verb still counts."""
        return {
            "prompt": [{"role": "user", "content": self.question}],
            "chosen": _said(self.preferred),
            "rejected": _said(self._rising),
        }


def _said(answer: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": answer}]


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
