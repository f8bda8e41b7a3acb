"""One step of a standing run, looked at from all sides: losses, gradient, and updates by two optimizers.

The step goes through the loop's own functions, so that what it does wrong is in the answer.
"""

from collections.abc import Iterable
from contextlib import closing
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dynotune.bench.parity.draws import normal
from dynotune.config.keys.optimizer import OptimizerConfig
from dynotune.train import loop
from dynotune.train.optimizer import Update, build_optimizer
from dynotune.train.run import Run

KEPT = 1 << 20
"""Elements of a parameter that are kept, as whole rows spread over it; its norm is kept of all. A model trained in full
would else make files of gigabytes."""

MADE_UP = (2.0, 0.5, 1.0)
"""Norms of the made-up gradients, one an update: the first one is clipped by the default `max_grad_norm`."""


def take(run: Run, max_grad_norm: float, seed: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The step's loss and what became of each trained parameter; of its tensors as `Answer` has them.

    `update/`: by SGD with a learning rate of 1, since AdamW's first update is a sign, which flips on rounding. `drawn/`: by
    the run's own optimizer from three made-up gradients, the same in every arm.
    """
    trained = {name: p for name, p in run.trainee.model.named_parameters() if p.requires_grad}
    with closing(run.feed.steps(run.plan)) as steps:
        step, batches = next(steps)
        counted = run.objective.counts(run.plan.spans, step.rows)[0]
        loss, _ = loop.forward_backward(run, step, batches, counted)
        for _ in batches:  # what was left of the step stays out of the answer, not out of the feed
            pass
    facts: dict[str, Any] = {"loss": float(loss)}
    tensors, squares = of_parameters("gradient", trained, ((name, p.grad) for name, p in trained.items()))
    before = {name: p.detach().clone() for name, p in trained.items()}
    sgd = build_optimizer(run.trainee.model, OptimizerConfig(optim="sgd", learning_rate=1.0), fused=fused(run))
    Update(trained.values(), sgd, max_grad_norm)(loss)
    updated, more = of_parameters("update", trained, changes(trained, before))
    restore(trained, before)
    size = sum(p.numel() for p in trained.values()) ** 0.5
    for number, norm in enumerate(MADE_UP):
        for name, p in trained.items():
            p.grad = (norm / size * normal(f"{name} {number}", p, seed)).to(p.dtype)
        run.update(loss)
    drawn, last = of_parameters("drawn", trained, changes(trained, before))
    return facts | {"squares": squares | more | last}, tensors | updated | drawn


def fused(run: Run) -> bool:
    """Whether the run's own updates are."""
    return not run.update.waits_for_device


def changes(trained: dict[str, nn.Parameter], before: dict[str, Tensor]) -> Iterable[tuple[str, Tensor]]:
    return ((name, p.detach().float() - before[name].float()) for name, p in trained.items())


@torch.no_grad()
def restore(trained: dict[str, nn.Parameter], before: dict[str, Tensor]) -> None:
    for name, p in trained.items():
        p.copy_(before[name])


def of_parameters(
    kind: str, trained: dict[str, nn.Parameter], values: Iterable[tuple[str, Tensor | None]]
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """What is kept of one tensor a parameter, and the sum of squares of all of it, by `KIND/NAME`."""
    tensors, squares = {}, {}
    for name, value in values:
        of = torch.zeros_like(trained[name]) if value is None else value.detach()
        tensors[f"{kind}/{name}"] = kept(of).float().cpu().clone()
        squares[f"{kind}/{name}"] = float(of.double().square().sum()) if of.numel() <= KEPT else float(of.norm()) ** 2
    return tensors, squares


def kept(of: Tensor) -> Tensor:
    if of.numel() <= KEPT:
        return of
    rows = of.reshape(-1, of.shape[-1])
    few = max(1, KEPT // rows.shape[1])
    at = np.linspace(0, len(rows) - 1, few).round().astype(np.int64)
    return rows[torch.from_numpy(np.unique(at)).to(of.device)]
