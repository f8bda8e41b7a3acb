"""Speed-ups that make the mistakes of the protocol's table, and some that make none."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from dynotune.data.examples import IGNORE
from dynotune.execution import packed
from dynotune.model.attention.backends import reference
from dynotune.model.packed import lay_side_by_side
from dynotune.speedups.contract import Context, Installation, Kind, No, Order, Speedup
from dynotune.speedups.expectation import Expectation
from dynotune.speedups.registry import register, unregister
from dynotune.speedups.site import Site
from dynotune.train import loop
from dynotune.train.loop import forward_backward_micro_batch

Put = Callable[[ExitStack], None]


def put(stack: ExitStack, place: Any, name: str, value: Any) -> None:
    stack.enter_context(patch.object(place, name, value))


def labels_by(change: Callable[[Any, Any], Any]) -> Put:
    """The layout, with other labels of each document."""

    def wrong(documents: Sequence[Any], tokens: int, **more: Any) -> Any:
        return lay_side_by_side([(ids, change(ids, labels)) for ids, labels in documents], tokens, **more)

    return lambda stack: put(stack, packed, "lay_side_by_side", wrong)


def leaking(continuous: bool) -> Put:
    """All documents of a micro-batch see those before them."""
    right = reference.attend

    def wrong(q: Tensor, k: Tensor, v: Tensor, lengths: Any, *more: Any) -> Tensor:
        return right(q, k, v, (sum(lengths),), *more)

    def plant(stack: ExitStack) -> None:
        put(stack, reference, "attend", wrong)
        if continuous:
            continuous_positions(stack)

    return plant


def continuous_positions(stack: ExitStack) -> None:
    """Positions run on from one document to the next: with rotary embeddings and isolation the same mathematics."""

    def laid(documents: Sequence[Any], tokens: int, **more: Any) -> Any:
        made = lay_side_by_side(documents, tokens, **more)
        made.positions_T[:] = np.arange(tokens)
        return made

    put(stack, packed, "lay_side_by_side", laid)


def accumulating(change: Callable[[list[Any]], list[Any]], means: bool = False) -> Put:
    """The loop's accumulation, of other micro-batches or of their means."""

    def wrong(run: Any, step: Any, batches: Iterator[Any], whole: int) -> tuple[Tensor, Tensor]:
        every = list(batches)
        counts = [run.objective.counts(run.plan.spans, batch.rows)[0] for batch in step.micro_batches]
        loss, sums = torch.zeros(()), torch.zeros(len(run.objective.sums))
        for number, batch in change(list(enumerate(every))):
            by = counts[number] * len(every) if means else whole
            micro_loss, micro_sums = forward_backward_micro_batch(run, batch, by, number)
            loss, sums = loss + micro_loss / by, sums + micro_sums
        return loss, sums

    return lambda stack: put(stack, loop, "forward_backward", wrong)


def mask_off_by_one(ids: Any, labels: Any) -> Any:
    """The right tokens under a mask that begins and ends a token early."""
    return np.where(np.append(labels[1:] != IGNORE, False), ids, IGNORE).astype(np.int32)


BUGS: dict[str, Put] = {
    "label mask off by one": labels_by(mask_off_by_one),
    "prompt tokens in the loss": labels_by(lambda ids, labels: ids),
    "mean of micro-batch means": accumulating(lambda every: every, means=True),
    "last micro-batch dropped": accumulating(lambda every: every[:-1]),
    "packing leaks, continuous positions": leaking(continuous=True),
    "packing leaks, positions reset": leaking(continuous=False),
}

HARMLESS: dict[str, Put] = {
    "positions not reset": continuous_positions,
    "micro-batches the other way round": accumulating(lambda every: every[::-1]),
}

NAME = "planted"


@contextmanager
def planted(plant: Put, only_bfloat16: bool = False, calls_itself: Kind = Kind.EXACT) -> Iterator[None]:
    """Inside, there is a speed-up `planted` that calls itself exact. only_bfloat16: as a kernel that takes nothing else."""

    class Planted(Speedup):
        name = NAME
        summary = "Planted."
        default = "off"
        order = Order.STEP
        kind = calls_itself

        def applicable(self, context: Context) -> No | None:
            if only_bfloat16 and context.compute is not torch.bfloat16:
                return No("its kernel takes bfloat16")
            return None

        def install(self, site: Site) -> Installation | No:
            stack = ExitStack()
            plant(stack)
            return Installation(stack.close)

        def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
            return []

    register(Planted)
    try:
        yield
    finally:
        unregister(NAME)
