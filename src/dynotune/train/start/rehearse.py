"""A run on one process up to its first update: what can go wrong for want of a key, a file or memory goes wrong on one GPU
in a minute, and not on eight."""

import time
from contextlib import closing
from typing import Any

import numpy as np
import torch

from dynotune.errors import TrainingError
from dynotune.plan.layout import MicroBatch
from dynotune.plan.pairs import PairSpans
from dynotune.plan.plan import Plan
from dynotune.plan.prompts import most_shared
from dynotune.train.loop import forward_backward_micro_batch
from dynotune.train.run import Run


def rehearse(run: Run) -> dict[str, Any]:
    """Forward and backward of the largest micro-batch that the plan could make, without an update. Returns its figures.

    Raises `TrainingError` where memory runs out or the loss or a gradient is not finite.
    """
    batch, *others = rehearsed(run.plan)
    began = time.perf_counter()
    run.trainee.model.train()
    loss = _proved(run, batch)
    for other in others:
        _proved(run, other)
    what = "pairs" if isinstance(run.plan.spans, PairSpans) else "documents"
    figures: dict[str, Any] = {
        "tokens": batch.tokens,
        what: len(batch.rows),
        "loss": loss,
        "seconds": time.perf_counter() - began,
    }
    if run.device.type == "cuda":
        figures["peak_memory_gib"] = torch.cuda.max_memory_allocated(run.device) / 2**30
    return figures


def _proved(run: Run, batch: MicroBatch) -> float:
    """The loss of a step that holds these rows alone. Gradients are gone again."""
    count = max(1, int(run.objective.counts(run.plan.spans, batch.rows)[0]))
    loss = run.memory.must("forward", run, lambda: run_once(run, batch, count))
    finite = bool(torch.isfinite(loss)) and all(
        bool(torch.isfinite(p.grad).all()) for p in run.update.parameters if p.grad is not None
    )
    run.update.optimizer.zero_grad(set_to_none=True)
    if not finite:
        raise TrainingError(
            f"A micro-batch of {batch.tokens:,} tokens, among the largest, gives a loss or gradient that is not finite: the"
            " weights or the precision are at fault, before any update. Look at the model, or set `bf16: false`."
        )
    return float(loss) / count


def in_words(figures: dict[str, Any], world: int) -> str:
    """What was proved, in a sentence."""
    memory = f", at most {figures['peak_memory_gib']:.1f} GiB" if "peak_memory_gib" in figures else ""
    return (
        f"proved on one process for {world}: configuration, data, plan and model, and forward and backward of the largest"
        f" micro-batch ({figures['tokens']:,} tokens, loss {figures['loss']:.4f}, {figures['seconds']:.1f} s{memory}; the"
        " optimizer's states come with the first update)"
    )


def rehearsed(plan: Plan) -> list[MicroBatch]:
    """What a rehearsal of this plan runs: the largest, and where pairs of a step have a prompt in common that which has most
    keys by it."""
    shared = most_shared(plan)
    return [largest(plan)] if shared is None else [largest(plan), shared]


def largest(plan: Plan) -> MicroBatch:
    """The most that a micro-batch of this plan can be: its longest documents, as many as its largest rung holds."""
    lengths = plan.spans.lengths_of(plan.rows)
    order = np.argsort(-lengths, kind="stable")
    if plan.ladder is None:
        return MicroBatch(plan.rows[order[:1]], int(lengths[order[0]]))
    taken, left = [], plan.ladder.top
    for i in order.tolist():
        if lengths[i] <= left:
            taken.append(i)
            left -= int(lengths[i])
        if left < 2:
            break
    return MicroBatch(plan.rows[np.array(sorted(taken))], plan.ladder.top)


def run_once(run: Run, batch: MicroBatch, denominator: int) -> torch.Tensor:
    """Forward and backward of one micro-batch; returns its loss []."""
    with closing(run.feed.batches([batch])) as batches:
        (loss, _), *_ = [forward_backward_micro_batch(run, one, denominator) for one in batches]
    return loss
