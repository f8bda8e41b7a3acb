"""Promise: the plan decides how a step is executed, and how it is executed changes nothing in what is learned."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dynotune.data.examples import Example, Examples
from dynotune.data.rows import Place
from dynotune.execution.feed import Documents, Feed
from dynotune.execution.plain import PlainPath
from dynotune.plan.layout import MicroBatch
from dynotune.plan.plan import Plan, Step
from dynotune.plan.truncation import truncate


def lay_out(sizes: list[int], step: Step) -> Step:
    """The same step with its documents in micro-batches of these sizes."""
    cuts = np.cumsum(sizes)[:-1]
    parts = zip(np.split(step.rows, cuts), np.split(step.lengths, cuts), strict=True)
    sums = [(rows, int(lengths.sum())) for rows, lengths in parts]
    return replace(step, micro_batches=[MicroBatch(rows, tokens, real_tokens=tokens) for rows, tokens in sums])


def test_documents_come_in_the_plans_micro_batches() -> None:
    ids = [np.arange(n, dtype=np.int32) for n in (3, 5, 2, 4)]
    examples = Examples.from_list(Example(x, x, Place("rows", i)) for i, x in enumerate(ids))
    documents = Documents(examples, truncate(examples, None, "keep_start"))
    feed = Feed(documents, PlainPath(None, None), torch.device("cpu"))  # type: ignore[arg-type]
    rows, lengths = np.array([2, 3, 0, 1]), np.array([2, 4, 3, 5])
    batches = [MicroBatch(np.array(rows), 0) for rows in ([2], [3, 0], [1])]
    step = Step(1, 1.0, rows, lengths, batches, 14, 10)
    assert [[len(ids_T) for ids_T, _ in batch] for batch in feed.batches(step.micro_batches)] == [[2], [4, 3], [5]]


@pytest.mark.parametrize("sizes", [[4], [1, 3], [2, 2]])
def test_another_layout_runs_as_planned_and_gives_the_same_losses(
    sizes: list[int], run_tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"per_device_train_batch_size": 4, "max_steps": 3, "overwrite_output_dir": True}
    plain = run_tiny(**settings)
    step, calls = Plan.step, 0
    backward: Any = torch.Tensor.backward

    def count(self: Any, *args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        return backward(self, *args, **more)

    monkeypatch.setattr(Plan, "step", lambda self, number: lay_out(sizes, step(self, number)))
    monkeypatch.setattr(torch.Tensor, "backward", count)
    other = run_tiny(**settings)
    assert calls == 3 * len(sizes)
    for a, b in zip(plain.metrics, other.metrics, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-6)
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-5)
