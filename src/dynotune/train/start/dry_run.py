"""The largest micro-batch run before the first step, under what might be done about its activations: what it really takes.

It counts as no training: gradients, random states and buffers are afterwards as they were.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch

from dynotune.estimate.fastest import Measured, Setting
from dynotune.execution.side_by_side import SideBySidePath
from dynotune.model.activations.policy import policy_of
from dynotune.model.as_it_was import as_it_was
from dynotune.plan.plan import Plan
from dynotune.speedups.activation import PREFIX, ActivationPolicy
from dynotune.speedups.contract import Installation
from dynotune.speedups.installed import Installed
from dynotune.speedups.registry import speedups
from dynotune.train.faults.shortage import shortage_of
from dynotune.train.start.rehearse import largest


class Gauge(Protocol):
    """Reads the memory of a device."""

    def begin(self) -> None:
        """Count from here, with nothing cached."""
        ...

    def end(self) -> tuple[int, int]:
        """The most that was allocated and the most that was reserved beyond what was there at the beginning, in bytes, with
        all work done."""
        ...


class CudaGauge:
    """By the counts of PyTorch's allocator."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._allocated = 0

    def begin(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.synchronize(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        self._allocated = torch.cuda.memory_allocated(self.device)

    def end(self) -> tuple[int, int]:
        torch.cuda.synchronize(self.device)
        allocated = torch.cuda.max_memory_allocated(self.device) - self._allocated
        reserved = torch.cuda.max_memory_reserved(self.device) - self._allocated
        torch.cuda.reset_peak_memory_stats(self.device)
        return allocated, reserved


class DryRun:
    """Called with a setting: what it takes, None where memory runs out or its policy cannot be put in."""

    def __init__(
        self,
        installed: Installed,
        path: SideBySidePath,
        plan: Plan,
        longest: int,
        states: int,
        accumulates: Callable[[int], bool],
        gauge: Gauge,
    ) -> None:
        """path, plan: as the run will execute them; the plan may be laid out for any size.

        states: bytes of the optimizer's, which are not there before the first update. accumulates: whether a step takes
        several micro-batches of so many tokens.
        """
        self.installed, self.site = installed, installed.site
        self.path, self.plan, self.longest = path, plan, longest
        self.states, self.accumulates, self.gauge = states, accumulates, gauge

    def __call__(self, setting: Setting) -> Measured | None:
        with policy_in_place(self.installed, setting.policy) as there:
            return self._run(setting.tokens) if there else None

    def _run(self, tokens: int) -> Measured | None:
        model = self.site.model
        found = None
        # Not replayed: a graph of a made-up micro-batch would stand in the run's memory.
        with no_trace(model, self.site.context.device), self.site.one_by_one():
            self.gauge.begin()
            try:
                found = self._twice(tokens)
            except (RuntimeError, MemoryError) as error:
                if shortage_of(error) is None:
                    raise
            # Behind the handler: until then the error holds the graph of the pass.
            model.zero_grad(set_to_none=True)
            allocated, reserved = self.gauge.end()
        gc.collect()
        if self.site.context.on_gpu:
            torch.cuda.empty_cache()
        return None if found is None else Measured(allocated + self.states, reserved + self.states, found)

    def _twice(self, tokens: int) -> float:
        """Seconds of the second of two passes: kernels are loaded and compiled in the first. Where a step accumulates, the
        second finds the gradients of the first."""
        model, device = self.site.model, self.site.context.device
        began = 0.0
        for _ in range(2):
            if not self.accumulates(tokens):
                model.zero_grad(set_to_none=True)
            batch = self._batch(tokens)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            began = time.perf_counter()
            with self.path.engaged():
                with self.site.autocast():
                    loss, _ = self.path.loss(batch)
                loss.backward()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        return time.perf_counter() - began

    def _batch(self, tokens: int) -> Any:
        """The longest documents or pairs of the plan, as many as fit, of made-up tokens with a label where one may be."""
        rows = largest(self.plan.executed(tokens, self.longest)).rows
        embedding: Any = self.site.model.get_input_embeddings()
        vocabulary = embedding.weight.shape[0]
        items = self.path.made_up(self.plan.spans, rows, vocabulary)
        host = self.path.host_batch(items, tokens, pin=False)
        return host.unpack(host.buffer.to(self.site.context.device))


@contextmanager
def policy_in_place(installed: Installed, policy: str) -> Iterator[bool]:
    """Inside, the policy stands in the model, alone, and what gives way to it is out, as in a run that takes it; gives
    whether it could be put in."""
    site = installed.site
    if policy_of(site.model) == policy or policy == "none":
        yield policy_of(site.model) == policy
        return
    one = speedups()[f"{PREFIX}{policy}"]
    assert isinstance(one, ActivationPolicy)
    with ExitStack() as back:
        for other in installed.giving_way(one):
            back.enter_context(installed.without(other))
        found = one.possible(site.context) or one.install(site)
        if isinstance(found, Installation):
            back.callback(found.uninstall)
        yield isinstance(found, Installation)


@contextmanager
def no_trace(model: Any, device: torch.device) -> Iterator[None]:
    """Behind it gradients, random states, buffers and mode of `model` are as before. There must be no gradients yet."""
    assert all(p.grad is None for p in model.parameters())
    with as_it_was(model, device):
        model.train()
        try:
            yield
        finally:
            model.zero_grad(set_to_none=True)
