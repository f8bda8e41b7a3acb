"""Pairs as the data gives them, and a reference that is a function of their tokens and masks alone."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dynotune.data.examples import IGNORE, Example, Examples
from dynotune.data.pairs import Pairs
from dynotune.data.rows import Place
from dynotune.reference.key import Key

KEY = Key(weights="w0", config="c0", precision="float32")
MADE_BY = {"backend": "reference", "torch": "2.13.0"}

Side = tuple[Sequence[int], int]
"""Tokens, and how many of the first carry no label."""


def pairs_of(*sides: tuple[Side, Side]) -> Pairs:
    rows = [side for pair in sides for side in pair]
    examples = []
    for i, (ids, prompt) in enumerate(rows):
        array = np.array(ids, np.int32)
        labels = np.where(np.arange(len(array)) < prompt, IGNORE, array).astype(np.int32)
        examples.append(Example(array, labels, Place("pairs.jsonl", i // 2 + 1)))
    return Pairs(Examples.from_list(examples, per_example=2))


def taken(pairs: Pairs, numbers: Sequence[int] | NDArray[np.int64]) -> Pairs:
    """These pairs, in this order."""
    return Pairs(pairs.examples.take_rows(np.asarray(numbers, np.int64)))


def many(count: int, seed: int = 0, longest: int = 20) -> Pairs:
    """Random pairs with a common prompt each."""
    random = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        prompt = random.integers(0, 300, random.integers(1, longest)).tolist()
        made.append(
            tuple(
                ([*prompt, *random.integers(0, 300, random.integers(1, longest)).tolist()], len(prompt))
                for _ in range(2)
            )
        )
    return pairs_of(*made)  # type: ignore[arg-type]


class Reference:
    """Stands for a model: log-probabilities of what it is given, and a note of what it was asked for."""

    def __init__(self, pairs: Pairs, columns: int = 2, off: float = 0.0) -> None:
        self.pairs, self.columns, self.off = pairs, columns, off
        self.asked: list[int] = []

    def __call__(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        self.asked += numbers.tolist()
        return self.right(numbers)

    def right(self, numbers: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
        found = []
        for p in numbers:
            rows = self.pairs[int(p)]
            sums = [-(1 + (e.ids_T[e.labels_T != IGNORE].astype(float) + 1) ** 0.5).sum() for e in rows]
            found.append([*sums, *(value / 3 for value in sums)][: self.columns])
        return np.array(found).reshape(-1, self.columns) * (1 + self.off)


def damage(path: Path, at: int = -5) -> None:
    """Change one byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))
