"""What happens in the script between two optimizer steps: calls of the model, backward passes, waits for batches, each on
the host's clock. On a GPU the host runs ahead, so these are the times it took to ask for work; on the CPU they are the work.

Public hooks where PyTorch has them (modules); where it has none (backward passes, loaders) the function is replaced by one
that measures and calls it. `stop` puts everything back.
"""

import gc
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dynotune.measure.traces.step import NOT_TRACING, StepMarks
from dynotune.profile.foreign.inside.batch import Batch, batch_of
from dynotune.profile.foreign.inside.found import callable_ones

Fail = Callable[[Exception], None]

LONG_COLLECTION = 1e-3
"""Seconds of Python's collector of garbage that are worth a mark."""


@dataclass(slots=True)
class Between:
    """From the end of one step to the end of the next; host seconds."""

    forward: float = 0.0
    backward: float = 0.0
    update: float = 0.0
    data_wait: float = 0.0
    own: float = 0.0
    """That watching took."""

    within: float = 0.0
    """Of `own`, what fell into the step as it is timed: the clock stands still for the rest."""

    batches: list[Batch] = field(default_factory=list)
    """One for each call of the model that a gradient was wanted of."""

    without_gradient: int = 0
    """Calls in training that none was wanted of: a reference's, or a second forward pass for metrics."""

    happened: list[str] = field(default_factory=list)


class Listening:
    """Fills `now`. `marks` is where a traced step wants to know what begins and ends."""

    def __init__(self, roots: tuple[nn.Module, ...], pad: int | None, quiet: Callable[[], None], fail: Fail) -> None:
        """pad: the padding token. quiet: called where no range of a profiler is open: before a batch, the model, a gradient.

        fail: takes what we do wrong, so that it does not reach the script.
        """
        self.quiet, self.fail = quiet, fail
        self._pid = os.getpid()
        self.now = Between()
        self.marks: StepMarks = NOT_TRACING
        self.pad = pad
        self.lengths = False
        """Whether lengths of documents are wanted."""

        self.autocast: str = ""
        """Precision of autocast around the model, when it was called last; empty without."""

        self.in_training = self.in_evaluation = False
        """Whether a call that a gradient was wanted of came in training mode, and in evaluation mode: that of a model from
        `from_pretrained` until somebody calls `train()`, which many loops never do."""

        self._held: list[tuple[float, Any]] = []
        """Waits for batches that a model in evaluation mode has not been called with: seconds and the loader. Gradients may
        be on there in an evaluation too, and only the call tells whether one is wanted."""

        self._depth = 0
        self._began = 0.0
        self._range: AbstractContextManager[Any] | None = None
        self._undo: list[Callable[[], None]] = []
        self._roots = roots
        self._backward_depth = 0
        for module in callable_ones(roots):
            before = module.register_forward_pre_hook(self._before_call, with_kwargs=True)
            after = module.register_forward_hook(self._after_call, always_call=True)
            self._undo += [before.remove, after.remove]
        self._measure_backward()
        self._measure_loaders()
        self._hear_collections()

    def stop(self) -> None:
        """Put everything back."""
        while self._undo:
            self._undo.pop()()

    def next_step(self) -> Between:
        """What was seen of the step that ends here."""
        ended, self.now = self.now, Between()
        return ended

    def _before_call(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return  # the script compiles a function around the model: nothing of ours is put into its graph
        if os.getpid() != self._pid:
            return  # a worker of a loader, forked with everything that hangs on the model
        try:
            self._call(module, args, kwargs)
        except Exception as error:  # noqa: BLE001  (a guest in the script's process)
            self.fail(error)

    def _call(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self._depth == 0:
            self.quiet()
        self._depth += 1
        if self._depth == 1:
            self._settle(self._trains(module) and torch.is_grad_enabled())
        if self._depth > 1 or not self._trains(module):
            return
        entered = time.perf_counter()
        kind = _device_kind(module)
        self.autocast = str(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else ""
        if torch.is_grad_enabled():
            self.in_training |= module.training
            self.in_evaluation |= not module.training
            self.now.batches.append(batch_of(args, kwargs, self.pad, lengths=self.lengths))
            self._range = self.marks.forward(len(self.now.batches) - 1)
            self._range.__enter__()
        else:
            self.now.without_gradient += 1
        self._began = time.perf_counter()
        self.now.own += self._began - entered
        self.now.within += self._began - entered

    def _trains(self, module: nn.Module) -> bool:
        """Whether what happens with the model is training. By its mode, if it has ever trained in the right one: an
        evaluation need not turn gradients off. Else by whether gradients are wanted."""
        return module.training or (torch.is_grad_enabled() and not self.in_training)

    def _settle(self, booked: bool) -> None:
        """Waits that were held back: those of training are booked, others dropped."""
        for seconds, loader in self._held if booked else ():
            self._waited(seconds, loader)
        self._held.clear()

    def _waited(self, seconds: float, loader: Any) -> None:
        self.now.data_wait += seconds
        self.loader = loader

    def _after_call(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._depth = max(self._depth - 1, 0)
        if self._depth or not self._began:
            return
        self.now.forward += time.perf_counter() - self._began
        self._began = 0.0
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None

    def _quietly(self) -> None:
        try:
            if self._depth == 0:
                self.quiet()
        except Exception as error:  # noqa: BLE001  (a guest in the script's process)
            self.fail(error)

    def _measure_backward(self) -> None:
        inner = torch.autograd.backward

        def backward(*args: Any, **kwargs: Any) -> Any:
            if self._backward_depth or torch.compiler.is_compiling():
                return inner(*args, **kwargs)
            self._quietly()  # of a script in which no model and no loader can be watched
            self._settle(True)  # where no call is seen: those in a function that the script compiles
            self._backward_depth += 1
            began = time.perf_counter()
            try:
                with self.marks.backward(max(len(self.now.batches) - 1, 0)):
                    return inner(*args, **kwargs)
            finally:
                self._backward_depth -= 1
                self.now.backward += time.perf_counter() - began

        torch.autograd.backward = backward
        self._undo.append(lambda: _put_back(torch.autograd, "backward", backward, inner))

    def _measure_loaders(self) -> None:
        module: Any = sys.modules.get("torch.utils.data.dataloader")
        iterator = getattr(module, "_BaseDataLoaderIter", None)
        if iterator is None:
            return
        inner = iterator.__next__

        def following(loader: Any) -> Any:
            if os.getpid() != self._pid:
                return inner(loader)
            self._quietly()
            came = False
            began = time.perf_counter()
            try:
                batch = inner(loader)
                came = True
                return batch
            finally:
                waited = time.perf_counter() - began
                if all(one.training for one in self._roots[:1]):
                    self._waited(waited, loader)
                elif came and all(self._trains(one) for one in self._roots[:1]):  # an evaluation has batches of its own
                    self._held.append((waited, loader))

        iterator.__next__ = following
        self._undo.append(lambda: _put_back(iterator, "__next__", following, inner))

    def _hear_collections(self) -> None:
        began = 0.0

        def heard(phase: str, info: dict[str, int]) -> None:
            nonlocal began
            if phase == "start":
                began = time.perf_counter()
            elif time.perf_counter() - began >= LONG_COLLECTION:
                self.now.happened.append("garbage-collection")

        gc.callbacks.append(heard)
        self._undo.append(lambda: gc.callbacks.remove(heard))

    loader: Any = None
    """The iterator of the loader that gave the last batch."""


def _put_back(owner: Any, name: str, ours: Any, theirs: Any) -> None:
    if getattr(owner, name) is ours:  # somebody may have put another one there meanwhile, which calls ours
        setattr(owner, name, theirs)


def _device_kind(module: nn.Module) -> str:
    first = next(module.parameters(), None)
    return first.device.type if first is not None else "cpu"
