"""Promise: the next micro-batches are made while this one is worked on, in the plan's order; nothing outlives its use."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from dynotune.config.keys.batch import BatchConfig
from dynotune.config.keys.objective import SFTObjectiveConfig
from dynotune.data.examples import Example, Examples
from dynotune.data.rows import Place
from dynotune.execution import feed as module
from dynotune.execution.feed import Documents, Feed
from dynotune.execution.path import Document, HostBatch
from dynotune.execution.plain import PlainPath
from dynotune.objectives.sft import SFTObjective
from dynotune.plan.plan import Plan
from dynotune.plan.truncation import truncate
from dynotune.train.evaluate import Evaluator, HeldOut
from tests.tiny import tiny_model, tiny_tokenizer


def a_plan(rows: int = 10, **batch: Any) -> tuple[Plan, Documents]:
    ids = [np.arange(3 + i, dtype=np.int32) for i in range(rows)]
    examples = Examples.from_list(Example(x, x, Place("rows", i)) for i, x in enumerate(ids))
    spans = truncate(examples, None, "keep_start")
    plan = Plan(spans, np.arange(rows), BatchConfig(per_device_train_batch_size=4, **batch), seed=1)
    return plan, Documents(examples, spans)


class Watched(PlainPath):
    """Notes what was asked of it, in which thread; may be told to fail."""

    def __init__(self, fail_at: int | None = None) -> None:
        super().__init__(None, None)  # type: ignore[arg-type]
        self.made: list[int] = []
        self.threads: set[str] = set()
        self.fail_at, self.changed = fail_at, threading.Condition()

    def host_batch(self, documents: Sequence[Document], tokens: int, pin: bool) -> HostBatch:
        if len(self.made) == self.fail_at:
            raise OSError("the disk is gone")
        with self.changed:
            self.made.append(tokens)
            self.changed.notify_all()
        self.threads.add(threading.current_thread().name)
        return super().host_batch(documents, tokens, pin)

    def wait_for(self, count: int, timeout: float = 120) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: len(self.made) >= count, timeout)


def test_steps_come_in_order_with_their_own_documents_from_any_step_on() -> None:
    plan, documents = a_plan(num_train_epochs=2)
    for after in (0, 2, plan.total_steps - 1):
        seen = []
        feed = Feed(documents, PlainPath(None, None), torch.device("cpu"))  # type: ignore[arg-type]
        with closing(feed.steps(plan, after)) as steps:
            for step, batches in steps:
                lengths = [len(ids_T) for batch in batches for ids_T, _ in batch]
                assert lengths == step.lengths.tolist()
                seen.append(step.number)
        assert seen == list(range(after + 1, plan.total_steps + 1))


def test_the_next_batches_are_made_before_they_are_asked_for_and_no_more_than_that() -> None:
    plan, documents = a_plan()
    path = Watched()
    steps = Feed(documents, path, torch.device("cpu"), ahead=2).steps(plan)
    _, batches = next(steps)
    next(batches)
    assert path.wait_for(1 + 2 + 1)  # this one, two ahead, and the one that took its place
    assert not path.wait_for(5, timeout=0.2)
    assert path.threads == {"dynotune-feed_0"}
    steps.close()


def test_a_step_can_be_taken_again_as_another_plan_lays_it_out_and_the_rest_behind_it() -> None:
    plan, documents = a_plan()
    steps = Feed(documents, PlainPath(None, None), torch.device("cpu")).steps(plan)  # type: ignore[arg-type]
    _ = list(next(steps)[1])
    _, batches = next(steps)
    next(batches)  # the second step fails behind its first micro-batch
    other = plan.executed(128)
    step, batches = steps.again(other)
    assert step.number == 2
    assert len(step.micro_batches) == 1
    assert len(list(batches)) == 1
    rest = [(step.number, len(list(batches))) for step, batches in steps]
    assert rest == [(number, 1) for number in range(3, plan.total_steps + 1)]
    steps.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("dynotune-feed")]


def test_a_run_that_stops_early_leaves_no_thread_behind() -> None:
    plan, documents = a_plan(num_train_epochs=50)
    steps = Feed(documents, PlainPath(None, None), torch.device("cpu")).steps(plan)  # type: ignore[arg-type]
    _, batches = next(steps)
    next(batches)
    assert any(thread.name.startswith("dynotune-feed") for thread in threading.enumerate())
    steps.close()
    assert not any(thread.name.startswith("dynotune-feed") for thread in threading.enumerate())


def test_an_evaluation_that_fails_leaves_no_thread_behind() -> None:
    _, documents = a_plan()
    objective = SFTObjective(SFTObjectiveConfig())

    class Fails(PlainPath):
        def loss(self, batch: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
            assert any(thread.name.startswith("dynotune-feed") for thread in threading.enumerate())
            raise RuntimeError("out of memory")

    model: Any = tiny_model()
    held_out = {"eval": HeldOut(documents, documents.spans, np.arange(1, 10))}
    cpu = torch.device("cpu")
    evaluate = Evaluator(
        held_out, Fails(model, objective), objective, tiny_tokenizer(), cpu, samples=0, max_new_tokens=1
    )
    with pytest.raises(RuntimeError, match="out of memory") as kept:  # whoever keeps an error keeps its frames
        evaluate(model, nullcontext(), None)
    assert not any(thread.name.startswith("dynotune-feed") for thread in threading.enumerate())
    assert kept.tb is not None


def test_what_fails_in_the_thread_is_raised_where_the_batch_is_taken() -> None:
    plan, documents = a_plan()
    steps = Feed(documents, Watched(fail_at=5), torch.device("cpu")).steps(plan)
    with pytest.raises(OSError, match="the disk is gone"):
        _ = [list(batches) for _, batches in steps]


def test_a_step_whose_batches_were_not_all_taken_is_a_defect_that_is_seen() -> None:
    plan, documents = a_plan()
    steps = Feed(documents, PlainPath(None, None), torch.device("cpu")).steps(plan)  # type: ignore[arg-type]
    _, batches = next(steps)
    next(batches)
    with pytest.raises(AssertionError, match="not all taken"):
        next(steps)


def test_waiting_for_a_batch_is_counted_and_not_waiting_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, documents = a_plan()
    made: list[Future[Any]] = []

    class Kept(ThreadPoolExecutor):
        def submit(self, *args: Any, **more: Any) -> Any:
            made.append(super().submit(*args, **more))
            return made[-1]

    class Slow(PlainPath):
        def host_batch(self, documents: Sequence[Document], tokens: int, pin: bool) -> HostBatch:
            threading.Event().wait(0.05)
            return super().host_batch(documents, tokens, pin)

    feed = Feed(documents, Slow(None, None), torch.device("cpu"))  # type: ignore[arg-type]
    _ = [list(batches) for _, batches in feed.steps(plan)]
    assert feed.wait_seconds > 0.05

    monkeypatch.setattr(module, "ThreadPoolExecutor", Kept)
    path = Watched()
    feed = Feed(documents, path, torch.device("cpu"), ahead=1000)
    steps = feed.steps(plan)
    _, batches = next(steps)
    assert path.wait_for(len(plan.rows))  # all are made before the first is taken
    assert not wait(made, 120).not_done
    list(batches)
    _ = [list(batches) for _, batches in steps]
    assert feed.wait_seconds == 0
