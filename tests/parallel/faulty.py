"""What goes wrong on some ranks in tests: memory that runs out, steps that are not finite."""

import math
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from transformers import TrainerCallback

from dynotune.execution.packed import PackedPath
from tests.parallel.work import SAVES, AtStep, rank, train
from tests.speedups.needs_the_head import a_head_that_nobody_uses, needs_the_head
from tests.tiny import tiny_model


def short_of_memory(folder: Path, victims: Sequence[int], holds: int, where: str = "forward", **more: Any) -> None:
    """Micro-batches of more than `holds` tokens do not fit, on `victims` only and from step 2 on."""
    taken: list[int] = []
    if rank() in victims:
        loss = PackedPath.loss

        def fails(path: PackedPath, batch: Any) -> Any:
            trains = path.model.training
            if trains == (where != "evaluation") and len(batch.ids_T) > holds and (taken or not trains):
                (folder / f"short-{rank()}").write_text("short")
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 352.00 KiB.")
            return loss(path, batch)

        PackedPath.loss = fails  # type: ignore[method-assign]
    step_end = AtStep(rank(), 1, lambda control: taken.append(1), "step_end")
    told = StringIO()
    given = {"micro_batch_tokens": 512, "global_batch_size": 6, "learning_rate": 1e-2, **more}
    result = train(folder / "run", [step_end], Console(file=told, width=1000), **given)
    (folder / f"told-{rank()}").write_text(told.getvalue())
    (folder / f"weights-{rank()}").write_text(
        str([float(p.detach().double().sum()) for p in result.model.parameters()])
    )


def short_in_the_optimizer(folder: Path, victim: int) -> None:
    if rank() == victim:
        step = torch.optim.SGD.step

        def fails(self: Any, *args: Any, **more: Any) -> Any:
            if taken:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 352.00 KiB.")
            return step(self, *args, **more)

        torch.optim.SGD.step = fails  # type: ignore[method-assign]
    taken: list[int] = []
    train(folder / "run", [AtStep(rank(), 1, lambda control: taken.append(1), "step_end")], **{**SAVES, "optim": "sgd"})


def not_finite(folder: Path, victims: Sequence[int], once: bool, policy: str, **more: Any) -> None:
    """On `victims`, the hidden states of step 4's documents are NaN: in its first pass only, or whenever it is taken."""
    model = tiny_model()
    at: list[int] = []

    def poison(module: Any, args: Any, output: Any) -> Any:
        if rank() in victims and at == [3] and module.training and torch.is_grad_enabled():
            if once:
                at.append(0)
            return output * math.nan
        return output

    class Steps(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if at != [3] or policy == "skip":  # where it is to stop, the examination still is of step 4
                at[:] = [state.global_step]

    model.model.norm.register_forward_hook(poison)
    saves = {**SAVES, "save_steps": 2, "on_nonfinite_step": policy, "logging_steps": 1}
    result = train(folder / "run", [Steps()], model=model, **{**saves, **more})
    assert all(torch.isfinite(p).all() for p in result.model.parameters())
    (folder / f"steps-{rank()}").write_text(f"{result.steps}")


def on_without_what_it_needs(folder: Path, victims: Sequence[int]) -> None:
    """A speed-up is `on` that needs the head of labelled rows, which nobody uses on `victims`."""
    with needs_the_head(), pytest.MonkeyPatch.context() as patch:
        if rank() in victims:
            a_head_that_nobody_uses(patch)
        saves: dict[str, Any] = {**SAVES, "save_steps": 100}
        train(folder / "run", **saves, speedups={"needs_the_head": "on"})
