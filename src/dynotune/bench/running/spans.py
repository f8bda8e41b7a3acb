"""Which steps a block of each arm takes, so that both arms of a pair see the same documents.

Arms whose steps hold the same number of examples take the same steps. Where an arm's steps hold more of them, it takes fewer
steps over the same stretch of the epoch. Where a step is made of other rows (TRL's packing), no two blocks hold the same
documents, and an arm takes as many steps as hold about as many tokens.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dynotune.bench.asking.schedule import steps_for


@dataclass(frozen=True, slots=True)
class Shape:
    """Of an arm's steps."""

    examples: int
    """That a step holds; of bins, where rows are packed into them."""

    steps_an_epoch: int
    packs: bool
    tokens: float
    """A step's real tokens, about."""


@dataclass(frozen=True, slots=True)
class Spans:
    """The blocks of one bench."""

    shapes: Mapping[str, Shape]
    steps_a_block: int
    begin: int
    """Steps of the warm-up: blocks begin behind them. Of arms with other steps, behind as many examples of the largest."""

    @property
    def same_documents(self) -> bool:
        """Whether both blocks of every pair hold the same documents."""
        return len({shape.packs for shape in self.shapes.values()}) == 1 and not (
            self._packs and len({shape.examples for shape in self.shapes.values()}) > 1
        )

    @property
    def _packs(self) -> bool:
        return any(shape.packs for shape in self.shapes.values())

    def of(self, arm: str, number: int) -> tuple[int, int]:
        """First step and how many, for block `number` of this arm. Behind the end of the epoch it begins from the front."""
        mine, first = self.shapes[arm], next(iter(self.shapes.values()))
        if not self.same_documents:
            steps = max(1, round(self.steps_a_block * first.tokens / mine.tokens))
            return self._fit(self.begin, number, steps, mine.steps_an_epoch)
        unit = math.lcm(*(shape.examples for shape in self.shapes.values()))
        largest = max(shape.examples for shape in self.shapes.values())
        stretch = math.ceil(self.steps_a_block * largest / unit) * unit
        begin = math.ceil(self.begin * largest / unit) * unit
        examples = min(shape.examples * shape.steps_an_epoch for shape in self.shapes.values())
        start = self._place(begin, number, stretch, examples, unit)
        return start // mine.examples + 1, stretch // mine.examples

    @staticmethod
    def _place(begin: int, number: int, stretch: int, examples: int, unit: int) -> int:
        """The example with which a block begins, from 0: a multiple of `unit`."""
        windows = (examples - begin - unit) // stretch  # the last step of an epoch may be short, and is left out
        if windows < 1:
            return begin + number * stretch  # a small data set: into epochs to come
        return begin + number % windows * stretch

    @staticmethod
    def _fit(begin: int, number: int, steps: int, steps_an_epoch: int) -> tuple[int, int]:
        windows = (steps_an_epoch - begin - 1) // steps
        return begin + 1 + (number % windows if windows >= 1 else number) * steps, steps


def enough_steps(shapes: Mapping[str, Shape], step_seconds: Mapping[str, float], steps: int, seconds: float) -> int:
    """A block's steps, at least `steps`, with which the blocks of every arm take at least about `seconds`.

    step_seconds: of each arm. Blocks have as many steps of the arm whose steps hold the most examples, of others more; where
    rows are packed into bins, as many of the first arm, of others as hold about as many tokens.
    """
    spans = Spans(shapes, 1, 0)
    first = next(iter(shapes.values()))
    largest = max(shape.examples for shape in shapes.values())

    def share(shape: Shape) -> float:
        """Steps of an arm to one step of a block."""
        return largest / shape.examples if spans.same_documents else first.tokens / shape.tokens

    return max(steps_for(step_seconds[name] * share(shape), steps, seconds) for name, shape in shapes.items())


def shape_of(stood: Mapping[str, Any], tokens_a_step: float) -> Shape:
    """From what a standing arm says of itself, and the real tokens that its steps had in the warm-up."""
    return Shape(stood["examples_a_step"], stood["steps_an_epoch"], stood["packs"], tokens_a_step)
