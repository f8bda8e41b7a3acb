"""Promise: nothing grows with the number of steps: not memory, not hooks, not open files."""

import gc
import os
from typing import Any

import psutil
import pytest
import torch
from transformers import TrainerCallback


@pytest.mark.long
def test_a_long_run_needs_no_more_than_a_short_one(run_tiny: Any) -> None:
    seen: dict[int, tuple[int, int, int, float]] = {}

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if state.global_step in (300, 1500):
                gc.collect()
                process = psutil.Process(os.getpid())
                tensors = sum(isinstance(o, torch.Tensor) for o in gc.get_objects())
                hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
                seen[state.global_step] = tensors, hooks, process.num_fds(), process.memory_info().rss / 2**20

    run_tiny(max_steps=1500, logging_steps=100, callbacks=[Watch()], gradient_checkpointing=True, learning_rate=1e-4)
    (tensors, hooks, files, mib), (tensors_later, hooks_later, files_later, mib_later) = seen[300], seen[1500]
    assert hooks_later == hooks
    assert files_later <= files
    assert tensors_later <= tensors + 60  # the windows of steps that have not been read yet
    assert mib_later < mib + 30
