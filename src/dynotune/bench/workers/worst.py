"""Peak memory of a run on the largest micro-batch that its plan could make. The process that asks is a fresh one: what
an allocator keeps of others would be counted."""

from typing import Any

import numpy as np
import torch

from dynotune.plan.layout import MicroBatch
from dynotune.train.run import Run
from dynotune.train.start.rehearse import largest, run_once


def measured(run: Run, device: torch.device) -> dict[str, Any]:
    """Bytes: allocated and reserved at most, what the device's own counter says at the end, and what a middling micro-batch
    allocates. Two passes with an update between: the optimizer's states stand while the second one runs."""
    run.trainee.model.train()
    _pass(run, _typical(run))
    torch.cuda.synchronize(device)
    typical = torch.cuda.max_memory_allocated(device)
    run.update(_pass(run, largest(run.plan)))
    _pass(run, largest(run.plan))
    torch.cuda.synchronize(device)
    stats = torch.cuda.memory_stats(device)
    free, total = torch.cuda.mem_get_info(device)
    return {
        "allocated": torch.cuda.max_memory_allocated(device),
        "reserved": torch.cuda.max_memory_reserved(device),
        "device": total - free,
        "retries": int(stats.get("num_alloc_retries", 0)),
        "typical_allocated": typical,
    }


def _pass(run: Run, batch: MicroBatch) -> torch.Tensor:
    return run_once(run, batch, max(1, int(run.objective.counts(run.plan.spans, batch.rows)[0])))


def _typical(run: Run) -> MicroBatch:
    """Of the first step the micro-batch of middling size."""
    batches = run.plan.step(1).micro_batches
    order = np.argsort([batch.tokens for batch in batches], kind="stable")
    return batches[int(order[len(order) // 2])]
