"""Compiling before the first step: each token count of the plan once, and what it saves, measured on the way.

So no step of training waits for the compiler, and the cost stands beside the gain.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynotune.model.as_it_was import as_it_was
from dynotune.model.attention import hidden_states
from dynotune.model.compiled.regions import Regions
from dynotune.model.compiled.report import Comparison
from dynotune.model.families import FamilyBatch, pack_families
from dynotune.model.packed import PackedBatch, pack

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TIMED = 2
"""Runs of each way behind one that is not timed. The faster counts."""

Run = Callable[[int], None]
"""Forward and backward of a micro-batch of so many tokens. Leaves nothing behind, and waits for the device."""


def warm_up(
    regions: Regions,
    run: Run,
    tokens: Sequence[int],
    compare: int | None = None,
    instead: Callable[[], AbstractContextManager[Any]] | None = None,
) -> list[int]:
    """Compile for each of `tokens`. compare: one of them, run both ways for `regions.comparison`. instead: what it runs in
    without compiled layers; default the layers as they are written.

    The largest comes first, so that the memory is laid out by it. A count that does not fit is left out and returned:
    the step that needs it runs out of memory itself, and is dealt with there. Other errors of the model are raised.
    """
    assert compare is None or compare in tokens, (compare, tokens)
    other_seconds = None
    if compare is not None:
        with (instead or regions.as_written)():
            other_seconds = _fastest(run, compare) if _fits(run, compare) else None
    left_out = [count for count in sorted(set(tokens), reverse=True) if not _fits(run, count)]
    if compare is not None and other_seconds is not None and compare not in left_out and regions.broken is None:
        seconds = _fastest(run, compare)
        if seconds is not None:
            regions.comparison = Comparison(compare, other_seconds, seconds)
    return left_out


def dummy_run(
    model: "PreTrainedModel",
    longest: int,
    autocast: Callable[[], AbstractContextManager[Any]],
    engaged: Callable[[], AbstractContextManager[Any]],
    shared: bool = False,
) -> Run:
    """A `Run` through the layers of `model` with made-up documents of at most `longest` tokens.

    autocast, engaged: what a training step's forward runs in. shared: documents come in pairs that share their beginning,
    which is another graph. Gradients, buffers, random states and modes stay as they
    are.
    """
    device = next(model.parameters()).device
    trained = [p for p in model.parameters() if p.requires_grad]

    def run(tokens: int) -> None:
        lengths = [longest] * (tokens // longest) + ([tokens % longest] if tokens % longest else [])
        batch = _pairs(lengths, tokens, device) if shared else _documents(lengths, tokens, device)
        with as_it_was(model, device):
            model.train()
            with engaged(), autocast():
                hidden_TD = hidden_states(model, batch)
                if hidden_TD.requires_grad:  # not where the head alone is trained
                    torch.autograd.grad(hidden_TD, trained, torch.ones_like(hidden_TD), allow_unused=True)
            if device.type == "cuda":
                torch.cuda.synchronize(device)

    return run


def _documents(lengths: Sequence[int], tokens: int, device: torch.device) -> PackedBatch:
    return pack([(ids := np.ones(n, np.int32), ids) for n in lengths], tokens, device)


def _pairs(lengths: Sequence[int], tokens: int, device: torch.device) -> FamilyBatch:
    """Two documents that take each of `lengths` together and part at their last token."""
    return pack_families(
        [[(ids := np.ones(max(1, n - 1), np.int32), ids)] * min(n, 2) for n in lengths], tokens, device
    )


def _fits(run: Run, tokens: int) -> bool:
    try:
        run(tokens)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return False
    return True


def _fastest(run: Run, tokens: int) -> float | None:
    """Seconds; None where memory ran out."""
    times = []
    for _ in range(TIMED):
        began = perf_counter()
        if not _fits(run, tokens):
            return None
        times.append(perf_counter() - began)
    return min(times)
