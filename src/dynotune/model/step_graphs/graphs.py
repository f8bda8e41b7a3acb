"""Which micro-batches are replayed, and that a replay does what launching does.

A graph is made when a shape comes first, and compared with the same pass launched one by one: hidden states, and the
gradients of all weights. What differs by more than two launched passes do is not used.

Legend of shapes: T tokens of the micro-batch, D hidden.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dynotune.foreign import FOREIGN, in_a_line
from dynotune.model.activations.policy import policy_of
from dynotune.model.as_it_was import as_it_was
from dynotune.model.attention import hidden_states, text_decoder
from dynotune.model.attention.backends import KERNELS
from dynotune.model.attention.install import installed_in
from dynotune.model.attention.segments import segments_of
from dynotune.model.packed import PackedBatch
from dynotune.model.step_graphs.passes import Inputs, Launched, Passes, Run, Shape, layers_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MOST_TOKENS = 2048
"""Above that the device is busy for longer than the host needs to launch, and memory of a graph's own would be missed: 7B
under LoRA on an H200, 2 documents a step 151 ms launched and 27 replayed, 16 documents (2,100 tokens) 128 to 133 and 130
(`benchmarks/results/h200_step_graphs.json`)."""

MOST_GRAPHS = 24

ROOM = 2.0
"""How often the distance of two launched passes a replay may be off: attention of some backends adds up in any order."""

LEAST = 1e-6
"""Relative: what is not held against a replay where launched passes agree to the bit."""

Make = Callable[[Run, Inputs, Sequence[Tensor], Sequence[Tensor]], Passes]


class StepGraphs:
    """Of one model. `hidden_states` stands in for that of `model.attention`."""

    def __init__(self, model: "PreTrainedModel", make: Make, most_tokens: int = MOST_TOKENS) -> None:
        self.model, self.make, self.most_tokens = model, make, most_tokens
        self.why_not: dict[Shape, str] = {}
        """Shapes that are launched one by one, with the reason."""

        self.off: list[float] = []
        """Of each graph: how far its replay was off, beside the gradients' own size."""

        self.replayed = Counter[str]()
        """Forward and backward passes."""

        self.launched = 0
        """Forward passes for training that were not replayed."""

        self._graphs: dict[Shape, Passes] = {}
        self._anchor: Tensor | None = None
        self._parameters: list[Tensor] = []
        self._addresses: list[int] = []
        self._sums: list[Tensor] = []
        self._number = 0
        self._gave_up = ""

    @property
    def shapes(self) -> list[Shape]:
        """There are graphs of."""
        return list(self._graphs)

    def forget(self) -> None:
        """What runs in the layers has changed, or weights lie elsewhere: graphs of before are of no use."""
        for p, total in zip(self._parameters, self._sums, strict=True):
            if p.grad is total:
                p.grad = total.clone()
        self._graphs.clear()
        self._parameters, self._addresses, self._sums = [], [], []

    def hidden_states(self, model: "PreTrainedModel", batch: Any) -> Tensor:
        """As `dynotune.model.attention.hidden_states`."""
        graph = self._graph(batch)
        if graph is None:
            self.launched += torch.is_grad_enabled() and model.training
            return hidden_states(model, batch)
        assert self._anchor is not None
        passes, inputs = graph
        passes.inputs.take(inputs)
        replayed: Tensor = _Replayed.apply(self._anchor, self, passes)  # type: ignore[no-untyped-call]
        return replayed

    def _graph(self, batch: Any) -> tuple[Passes, Inputs] | None:
        """What is to be replayed for a micro-batch, and on what; None where it is launched."""
        if not (isinstance(batch, PackedBatch) and torch.is_grad_enabled() and self.model.training):
            return None
        installed: Any = installed_in(self.model)
        segments = segments_of(batch.boundaries_S1, batch.lengths)
        # One size of grids for all micro-batches of a token count: fewer graphs, and blocks without work end at once.
        longest = max(64, 1 << (len(batch.ids_T) - 1).bit_length())
        shape = Shape(len(batch.ids_T), len(segments.boundaries_S1), longest, installed.backend)
        if shape in self.why_not:
            return None
        inputs = Inputs(batch.ids_T, batch.positions_T, segments.boundaries_S1)
        if self._graphs and [p.data_ptr() for p in self._parameters] != self._addresses:
            self.forget()
        if shape not in self._graphs:
            why_not = self._why_not(shape, segments) or self._add(shape, inputs)
            if why_not:
                self.why_not[shape] = why_not
                return None
        return self._graphs[shape], inputs

    def _why_not(self, shape: Shape, segments: Any) -> str | None:
        if self._gave_up:
            return self._gave_up
        if shape.tokens > self.most_tokens:
            return f"above {self.most_tokens:,} tokens a replay gains nothing"
        if len(self._graphs) >= MOST_GRAPHS:
            return f"there are {MOST_GRAPHS} graphs already"
        if (policy := policy_of(self.model)) != "none":
            return f"activations are recomputed or moved (`activation_memory: {policy}`)"
        decoder = text_decoder(self.model)
        kernel = KERNELS.get(shape.backend)
        if kernel is not None and kernel.prepare(segments, decoder) is not None:
            return f"{kernel.WORDS} prepares each micro-batch on the host"
        return None

    def _add(self, shape: Shape, inputs: Inputs) -> str | None:
        """Make a graph and compare it; why it is not used, where it is not."""
        run = layers_of(text_decoder(self.model), shape)
        try:
            with self._apart():
                if not self._parameters:
                    self._find_parameters(run, inputs)
                passes = self.make(run, inputs.copies(), self._parameters, self._sums)
                # Other tokens than those that it was made with, which it might have kept.
                other = inputs._replace(ids_T=inputs.ids_T.flip(0))
                passes.inputs.take(other)
                off, allowed = self._compare(passes, Launched(run, other, self._parameters, self._spare()))
        except torch.OutOfMemoryError:
            return "memory ran out when its graph was made"
        except FOREIGN as error:
            if isinstance(error, torch.AcceleratorError) and "captur" not in str(error):
                raise
            # On leaving a capture that failed another error comes; the one before it says why. PyTorch's allocator takes
            # no further capture then.
            why = error.__context__ if isinstance(error.__context__, FOREIGN) else error
            self._gave_up = f"its graph cannot be made ({in_a_line(why)})"
            return self._gave_up
        if not off <= allowed:
            return f"a replay is off by {off:.1e} of the gradients' size, {allowed:.1e} allowed"
        self.off.append(off)
        self._graphs[shape] = passes
        return None

    def _find_parameters(self, run: Run, inputs: Inputs) -> None:
        """The trained weights that the layers' output depends on, and where their gradients will be summed."""
        trained = [p for p in text_decoder(self.model).parameters() if p.requires_grad]
        hidden_TD = run(inputs)
        found = torch.autograd.grad(hidden_TD, trained, torch.zeros_like(hidden_TD), allow_unused=True)
        self._parameters = [p for p, gradient in zip(trained, found, strict=True) if gradient is not None]
        self._addresses = [p.data_ptr() for p in self._parameters]
        self._sums = self._spare()
        self._anchor = torch.zeros((), device=hidden_TD.device, requires_grad=True)

    def _spare(self) -> list[Tensor]:
        return [torch.zeros_like(p) for p in self._parameters]

    def _compare(self, passes: Passes, launched: Launched) -> tuple[float, float]:
        """How far a replay is off, and how far it may be. Sums of gradients under way are put aside meanwhile."""
        self.take_over()
        kept = [total.clone() for total in self._sums]
        try:
            return self._off(passes, launched)
        finally:
            torch._foreach_copy_(self._sums, kept)

    def _off(self, passes: Passes, launched: Launched) -> tuple[float, float]:
        weights_TD = torch.randn(
            launched.hidden_TD.shape, generator=torch.Generator(launched.hidden_TD.device).manual_seed(0),
            device=launched.hidden_TD.device,
        ).to(launched.hidden_TD.dtype)  # fmt: skip

        def gradients(of: Passes, sums: list[Tensor]) -> list[Tensor]:
            torch._foreach_zero_(sums)
            of.forward()
            hidden_TD = of.hidden_TD.clone()
            of.gradient_TD.copy_(weights_TD)
            of.backward()
            return [hidden_TD, *(total.clone() for total in sums)]

        once, again = (gradients(launched, list(launched.sums)) for _ in range(2))
        # Twice: what the first replay leaves must not be in the second.
        _, found = (gradients(passes, self._sums) for _ in range(2))
        return _apart(found, once), max(LEAST, ROOM * _apart(again, once))

    def take_over(self) -> None:
        """Let gradients be summed where graphs add them; sums that stand elsewhere move there."""
        fresh: list[Tensor] = []
        for p, total in zip(self._parameters, self._sums, strict=True):
            if p.grad is total:
                continue
            if p.grad is None:
                fresh.append(total)
            else:
                total.copy_(p.grad)
            p.grad = total
        if fresh:
            torch._foreach_zero_(fresh)

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Inside, what is drawn and what modules count leaves no trace, and autocast keeps no casts of weights: they would
        be made in one graph and read in others, and those of before tie weights to the stream that they were made in."""
        kept = torch.is_autocast_cache_enabled()
        torch.clear_autocast_cache()
        torch.set_autocast_cache_enabled(False)
        try:
            with as_it_was(self.model, next(self.model.parameters()).device):
                yield
        finally:
            torch.set_autocast_cache_enabled(kept)


class _Replayed(torch.autograd.Function):
    """A micro-batch's layers as one node: the backward adds to the sums of gradients by itself."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, graphs: StepGraphs, passes: Passes) -> Tensor:
        graphs._number += 1
        ctx.graphs, ctx.passes, ctx.number = graphs, passes, graphs._number
        passes.forward()
        graphs.replayed["forward"] += 1
        return passes.hidden_TD.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        graphs: StepGraphs = ctx.graphs
        if ctx.number != graphs._number:
            raise RuntimeError("another micro-batch was replayed before the backward pass of this one")
        graphs.take_over()
        ctx.passes.gradient_TD.copy_(gradients[0])
        ctx.passes.backward()
        graphs.replayed["backward"] += 1
        return None, None, None


def _apart(found: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """The largest distance of two tensors beside the size of the second, by their norms."""
    pairs = list(zip(found, right, strict=True))
    off = torch.stack([(f.float() - r.float()).norm() for f, r in pairs])
    size = torch.stack([r.float().norm() for _, r in pairs])
    return float((off / size.clamp_min(1e-30)).nan_to_num(nan=torch.inf).max())
