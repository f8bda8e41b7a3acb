"""Branches of a CUDA graph: small products beside large ones, in multiprocessors that a small micro-batch leaves idle.

While a graph is captured, `fork` gives a `Fork` that puts calls on streams of their own, which become branches of the graph.
Anywhere else (launched passes, compiled code, the CPU) it gives one that calls in line and asks CUDA for nothing. Only the
order of kernels of different streams changes, never what one computes.

**Order.** Each branch begins behind an event of the main stream, so that it sees all that was put there before `fork`. What
comes `soon` is needed by the same caller, who calls `join` before it is read; what comes `late` (gradients of weights) is
needed by nobody until the capture ends, where `branching` joins everything. CUDA ends a capture with an error if a stream
is left out.

**Memory.** PyTorch hands freed memory out again at once to the stream that it was allocated on, without asking who else
still reads it. So what a branch reads and writes is kept here until the main stream has waited for it; autograd alone would
free what it saved as soon as the node returns. From then on nobody can come too early: the main stream has waited, and each
branch begins behind the main stream. `record_stream` would keep it to the end of the capture, all layers' of it. To bound
what is kept, the main stream waits for late work of a while ago, which has ended by then, never for what just began.

**Threads.** Autograd runs the backward pass in a thread of its own, with the forward's stream as the current one and none of
its context variables. So who is captured is found by the current stream.

**cuBLAS.** PyTorch gives each thread's handle a workspace for each stream (`at::cuda::getCurrentCUDABlasHandle`). It is made
at the first product there, in a capture from the graph's memory, and kept as long as the process lives: products side by
side never share one, which their results would otherwise depend on. Up to 32 MiB for each of three pairs on a Hopper.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from dynotune.foreign import FOREIGN

Kind = Literal["none", "gradients", "all"]
"""What runs beside: nothing, what comes late, or that and what comes soon."""

KINDS: tuple[Kind, ...] = ("none", "gradients", "all")

MOST_KEPT = 16
"""Late calls whose tensors are kept. A layer of seven adapted linears has 11."""

STILL_RUNNING = 8
"""Of these, the last ones: they are not waited for when the others are."""

R = TypeVar("R")


class Streams(NamedTuple):
    """Of a device. PyTorch has 32 streams of each priority and gives them out in turn, so that one may be given out twice:
    another's copies would be captured, and not be made. Of PyTorch itself only FSDP asks for these priorities."""

    main: Any
    """A graph is captured here. First of all, since it is what takes the time."""

    soon: Any
    late: Any


@cache
def streams_of(device: int) -> Streams:
    """The same ones for all graphs: memory that a stream frees goes to the same stream only."""
    return Streams(*(torch.cuda.Stream(device, priority=priority) for priority in (-2, -1, -1)))


class InLine:
    """Calls are made where they stand."""

    def soon(self, call: Callable[..., R], *args: Any) -> R:
        """`call(*args)`, to be read behind `join`. Tensors that it reads or writes must be among `args` or its result."""
        return call(*args)

    def join(self) -> None:
        """From here on what came `soon` may be read. As often as one likes."""

    def late(self, call: Callable[..., R], *args: Any) -> R:
        """As `soon`, but not to be read before the capture's branches are joined."""
        return call(*args)


IN_LINE = InLine()


class Fork(InLine):
    """Where branches begin: behind what is on the main stream now."""

    def __init__(self, branches: "Branches") -> None:
        self._branches = branches
        self._begin: Any = branches.main.record_event()
        """What late calls of this fork have to wait for; None once they do."""

    def soon(self, call: Callable[..., R], *args: Any) -> R:
        branch = self._branches.soon
        if branch is None:
            result = call(*args)
            self._begin = self._branches.main.record_event()
        else:
            result = branch.run(self._begin, call, args)
            self._begin = branch.last  # behind which it is behind the main stream's, too
        return result

    def join(self) -> None:
        if self._branches.soon is not None:
            self._branches.soon.join(self._branches.main)

    def late(self, call: Callable[..., R], *args: Any) -> R:
        branch = self._branches.late
        result = branch.run(self._begin, call, args)
        self._begin = None
        if len(branch.kept) > MOST_KEPT:
            branch.join(self._branches.main, but=STILL_RUNNING)
        return result


class Branch:
    """One stream beside the main one."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.kept: deque[tuple[Any, Any]] = deque()
        """Of each call that the main stream has not waited for: the event behind it, and what it reads and writes."""

        self._begun = False

    @property
    def last(self) -> Any:
        """The event behind the last call."""
        return self.kept[-1][0]

    def run(self, behind: Any, call: Callable[..., R], args: Any) -> R:
        """behind: an event, or None."""
        self._begun = True
        if behind is not None:
            self.stream.wait_event(behind)
        with torch.cuda.stream(self.stream):
            result = call(*args)
        self.kept.append((self.stream.record_event(), (args, result)))
        return result

    def join(self, main: Any, but: int = 0) -> None:
        """Let `main` wait for all calls but the last few, and let go of what they used."""
        joined = len(self.kept) - but
        if joined > 0:
            main.wait_event(self.kept[joined - 1][0])  # a stream works in order: those before are done as well
        for _ in range(joined):
            self.kept.popleft()

    def end(self, main: Any) -> None:
        """Let `main` wait for everything, a call that raised in its middle included."""
        if self._begun:
            main.wait_event(self.stream.record_event())
        self.kept.clear()


class Branches:
    """Of one capture on the stream `main`."""

    def __init__(self, main: Any, soon: Branch | None, late: Branch) -> None:
        self.main, self.soon, self.late = main, soon, late

    def end(self) -> None:
        if self.soon is not None:
            self.soon.end(self.main)
        self.late.end(self.main)


_captured: dict[Any, Branches] = {}
"""By main stream."""


def fork(x: Tensor) -> InLine:
    """Where the capture that `x` is computed in branches; in line where nothing is captured."""
    if torch.compiler.is_compiling() or not _captured:
        return IN_LINE
    branches = _captured.get(_current_stream(x))
    return IN_LINE if branches is None else Fork(branches)


def _current_stream(x: Tensor) -> Any:
    return torch.cuda.current_stream(x.device) if x.is_cuda else None


def uses_each_once(out: Tensor) -> bool:
    """Whether each weight that `out` depends on is used once. Of one that is used twice, autograd adds up the gradients as
    they come, on the main stream, where late ones are not there yet."""
    leaves: set[Any] = set()
    nodes = {out.grad_fn}
    to_visit = [out.grad_fn]
    while to_visit:
        node = to_visit.pop()
        for following, _ in () if node is None else node.next_functions:
            if hasattr(following, "variable"):
                if following in leaves:
                    return False
                leaves.add(following)
            elif following not in nodes:
                nodes.add(following)
                to_visit.append(following)
    return True


@contextmanager
def branching(kind: Kind) -> Iterator[None]:
    """Within a capture on the current stream: `fork` branches inside. Behind it all branches are joined."""
    if kind == "none":
        yield
        return
    main = torch.cuda.current_stream()
    streams = streams_of(torch.cuda.current_device())
    branches = Branches(main, Branch(streams.soon) if kind == "all" else None, Branch(streams.late))
    _captured[main] = branches
    try:
        yield
    except BaseException:
        with suppress(*FOREIGN):  # of a capture that is broken already; what broke it is what the caller has to hear
            branches.end()
        raise
    else:
        branches.end()
    finally:
        del _captured[main]
