"""What a person is told when memory runs out: when, for what, what the device held, and which settings help."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dynotune.config.whole import WholeConfig
from dynotune.estimate.memory import StepMemory
from dynotune.plan.plan import Plan
from dynotune.train.faults.advice import Circumstances, help_with, no_help
from dynotune.train.faults.shortage import Shortage, gib, shortage_of
from dynotune.train.faults.tensors import MicroBatchSize, Tensor, fitting, is_ambiguous, of_micro_batch, of_weights

MOST_NAMED = 3
"""Tensors that are named where several fit."""


@dataclass(frozen=True, slots=True)
class Where:
    """What was under way."""

    phase: str
    step: int | None = None
    batch: MicroBatchSize | None = None
    place: str = ""
    """Which micro-batch of how many."""

    def __str__(self) -> str:
        at = f" at step {self.step:,}" if self.step else ""
        if self.batch is None:
            return f"{self.phase}{at}"
        size = f"{self.batch.tokens:,} tokens, {self.batch.labels:,} of them with loss"
        return f"{self.phase}{at}, {self.place} ({size})"


@dataclass(frozen=True, slots=True)
class Explainer:
    """Knows the run whose memory ran out. Each part that is None is not spoken of."""

    config: WholeConfig
    device: torch.device
    model: Any = None
    estimate: Callable[[], StepMemory] | None = None
    """Counts what a step takes; it runs a few tokens through the model, so it is asked when memory is free again."""

    def lines(self, shortage: Shortage, where: Where, plan: Plan | None) -> list[str]:
        """The whole explanation."""
        packed = plan is not None and plan.ladder is not None
        at = Circumstances(
            where.phase,
            self.config,
            packed,
            _most_tokens(plan),
            None if plan is None else plan.longest,
            None if plan is None else plan.longest_document,
            self._memory(),
        )
        return [
            f"out of memory in {where}: {shortage.message}",
            *(f"  asked for: {line}" for line in self._asked(shortage, where)),
            *(f"  {line}" for line in device_lines(shortage)),
            *(f"  a step, estimated: {line}" for line in _parts(at)),
            *(f"  does not help: {line}" for line in no_help(at)),
            *(f"  helps: {line}" for line in help_with(at, shortage)),
        ]

    def _memory(self) -> StepMemory | None:
        if self.estimate is None:
            return None
        try:
            return self.estimate()
        except (RuntimeError, MemoryError) as error:
            if shortage_of(error) is None:
                raise
            return None

    def _asked(self, shortage: Shortage, where: Where) -> list[str]:
        asked, on_gpu = shortage.asked, self.device.type == "cuda"
        if asked is None:
            return ["how much, the error does not say"]
        if self.model is None:
            return [str(asked)]
        if is_ambiguous(asked, on_gpu):
            return [f"{asked}, which PyTorch's allocator takes for any small tensor: which one is not known"]
        found = self._candidates(asked, where, on_gpu)
        if not found:
            return [f"{asked}; no tensor of this model and micro-batch that is known by formula has this size"]
        if len(found) == 1:
            return [f"{asked}, the size of {found[0]}"]
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        return [f"{asked}, the size of {len(found)} tensors: " + "; ".join(map(str, found[:MOST_NAMED])) + more]

    def _candidates(self, asked: Any, where: Where, on_gpu: bool) -> list[Tensor]:
        of_batch = [] if where.batch is None else fitting(asked, of_micro_batch(self.model, where.batch), on_gpu)
        return of_batch + fitting(asked, of_weights(self.model), on_gpu)


def device_lines(shortage: Shortage) -> list[str]:
    """What the device held when the error was raised, as the error says it."""
    total, free = shortage.total, shortage.free
    if total is None or free is None:
        return []
    said = [f"the device: {free} free of {total}"]
    if shortage.allocated is not None:
        said.append(f"{shortage.allocated} allocated by PyTorch")
    if shortage.reserved is not None:
        said.append(f"{shortage.reserved} reserved and not allocated")
    if shortage.here is not None:
        said.append(f"{shortage.here} held by this process in all")
    said.append(f"{gib(shortage.others)} by other processes" if shortage.others else "no other process seen")
    return ["; ".join(said)]


def _parts(at: Circumstances) -> list[str]:
    if at.memory is None or at.tokens is None:
        return []
    parts = at.memory.parts(at.tokens, 1.0, packed=at.packed)
    return [", ".join(f"{part.name} {gib(part.bytes)}" for part in parts) + f" (micro-batches of {at.tokens:,} tokens)"]


def _most_tokens(plan: Plan | None) -> int | None:
    if plan is None:
        return None
    return plan.ladder.top if plan.ladder is not None else plan.longest
