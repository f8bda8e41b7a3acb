"""Which micro-batches are replayed, and that a replay does what launching does.

A graph is made when a shape comes first, and compared with the same pass launched one by one: hidden states, and the
gradients of all weights. What differs by more than two launched passes do is not used.

Legend of shapes: T tokens of the micro-batch, D hidden.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.modules.module import _has_any_global_hook

from dynotune.foreign import FOREIGN, in_a_line
from dynotune.model.activations.policy import policy_of
from dynotune.model.as_it_was import as_it_was
from dynotune.model.attention import hidden_states, text_decoder
from dynotune.model.attention.backends import KERNELS
from dynotune.model.attention.install import installed_in
from dynotune.model.attention.segments import grid_of_graphs, segments_of
from dynotune.model.packed import PackedBatch
from dynotune.model.step_graphs.passes import Inputs, Launched, Passes, Run, Shape, layers_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MOST_GRAPHS = 48

MOST_MOVES = 4
"""How often weights may come to lie elsewhere, or others be trained: each time all graphs are made again."""

THERE_ANYWAY = ("dynotune.model.shared_input", "transformers.", "peft.")
"""Where hooks of modules come from that need no call in a replay: copies of weights are recorded with the layers, and a
model's own mark inputs as such that need a gradient."""

ROOM = 2.0
"""How often the distance of two launched passes a replay may be off: attention of some backends adds up in any order."""

LAUNCHED = 4
"""Launched passes, at most, that a replay is held against."""

LEAST = 1e-6
"""Relative: what is not held against a replay where launched passes agree to the bit."""

MOST = 0.1
"""Relative: launched passes that are further apart draw, and nothing can be held against them."""

SPREAD = 0.02
"""Of the values that weights of zeros have while passes are compared: LoRA begins with B = 0, where A has no gradient."""

_made = {"graphs": 0}


def graphs_made() -> int:
    """How many were made in this process so far."""
    return _made["graphs"]


Make = Callable[[Run, Inputs, Sequence[Tensor], Sequence[Tensor]], Passes]


class StepGraphs:
    """Of one model. `hidden_states` stands in for that of `model.attention`."""

    def __init__(
        self, model: "PreTrainedModel", make: Make, most_tokens: int | None = None, longest: int | None = None
    ) -> None:
        """most_tokens: of a micro-batch that is replayed; None: of any. Where the device is busy for longer than the host
        needs to launch nothing is gained, and memory of a graph's own would be missed. 7B under LoRA on an H200, 16
        documents a step (2,187 tokens on average, up to 3,712): 154 ms launched and 120 replayed (LOG.md, 2026-11-23), on a
        faster host 128 to 133 and 130 (`benchmarks/results/h200_step_graphs.json`). longest: tokens of the longest document
        that will come; None: it is not known."""
        self.model, self.make, self.most_tokens, self.longest = model, make, most_tokens, longest
        self.why_not: dict[Shape, str] = {}
        """Shapes that are launched one by one, with the reason."""

        self.failed: list[str] = []
        """Of these reasons those that are faults, not sizes or settings."""

        self.off: list[float] = []
        """Of each graph: how far its replay was off, beside the gradients' own size."""

        self.replayed = Counter[str]()
        """Forward and backward passes."""

        self.launched = 0
        """Forward passes for training that were not replayed, besides those of steps in which nothing may be."""

        self._graphs: dict[Shape, Passes] = {}
        self._anchor: Tensor | None = None
        self._modules = list(text_decoder(model).modules())
        self.watched = 0
        """Of these how many because a hook sees a layer, a weight or all modules."""

        self._standing: list[tuple[int, bool]] = []
        self._parameters: list[Tensor] = []
        self._sums: list[Tensor] = []
        self._number = self._moves = 0
        self._gave_up = ""

    @property
    def shapes(self) -> list[Shape]:
        """There are graphs of."""
        return list(self._graphs)

    def forget(self) -> None:
        """Weights lie elsewhere, others are trained, or other code runs in the layers: graphs of before are of no use."""
        self._release()
        self.why_not.clear()

    def _release(self) -> None:
        """Keep no graph and no sums: gradients that stand in them get tensors of their own."""
        for p, total in zip(self._parameters, self._sums, strict=True):
            if p.grad is total:
                p.grad = total.clone()
        self._graphs.clear()
        self._parameters, self._standing, self._sums, self._anchor = [], [], [], None

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
        tokens = len(batch.ids_T)
        longest = grid_of_graphs(tokens, max(batch.lengths), self.longest)
        if (
            self.most_tokens is not None and tokens > self.most_tokens
        ):  # asked first: what is launched anyway is not held up
            self.why_not[Shape(tokens, 0, longest, installed.backend)] = (
                f"above {self.most_tokens:,} tokens a replay gains nothing"
            )
            return None
        segments = segments_of(batch.boundaries_S1, batch.lengths)
        shape = Shape(tokens, len(segments.boundaries_S1), longest, installed.backend)
        if self._standing and self._stands() != self._standing:
            self.forget()
            self._moves += 1
            if self._moves > MOST_MOVES:
                self._gave_up = self._failed(shape, "weights or buffers of the layers keep moving")
        if shape in self.why_not:
            return None
        if self._is_watched():
            self.watched += 1
            return None
        inputs = Inputs(batch.ids_T, batch.positions_T, segments.boundaries_S1)
        if shape not in self._graphs:
            if why_not := self._why_not(shape, segments):
                self.why_not[shape] = why_not
                return None
            if not self._add(shape, inputs):
                if not self._graphs:
                    self._release()
                return None
        return self._graphs[shape], inputs

    def _stands(self) -> list[tuple[int, bool]]:
        """Where every weight and buffer of the layers lies, and whether it is trained."""
        found = [
            (p.data_ptr(), p.requires_grad) for m in self._modules for p in m._parameters.values() if p is not None
        ]
        return found + [(b.data_ptr(), False) for m in self._modules for b in m._buffers.values() if b is not None]

    def _is_watched(self) -> bool:
        """Whether somebody's hook of the layers, their weights or all modules wants to be called: a replay calls none."""
        if _has_any_global_hook():
            return True
        for m in self._modules:
            for hooks in (m._forward_hooks, m._forward_pre_hooks, m._backward_hooks, m._backward_pre_hooks):
                if hooks and any(not _is_there_anyway(hook) for hook in hooks.values()):
                    return True
            for p in m._parameters.values():
                if p is not None:
                    of: Any = p
                    if of._backward_hooks or of._post_accumulate_grad_hooks:
                        return True
        return False

    def _why_not(self, shape: Shape, segments: Any) -> str | None:
        if self._gave_up:
            return self._gave_up
        if len(self._graphs) >= MOST_GRAPHS:
            return f"there are {MOST_GRAPHS} graphs already"
        if (policy := policy_of(self.model)) != "none":
            return f"activations are recomputed or moved (`activation_memory: {policy}`)"
        decoder = text_decoder(self.model)
        kernel = KERNELS.get(shape.backend)
        if kernel is not None and kernel.prepare(segments, decoder) is not None:
            return f"{kernel.WORDS} prepares each micro-batch on the host"
        return None

    def _add(self, shape: Shape, inputs: Inputs) -> bool:
        """Make a graph and compare it; whether it is used. Why not is kept, but where the micro-batch itself is at fault."""
        run = layers_of(text_decoder(self.model), shape)
        try:
            with self._apart():
                if not self._parameters:
                    self._find_parameters(run, inputs)
                passes = self.make(run, inputs.copies(), self._parameters, self._sums)
                # Other tokens than those that it was made with, which it might have kept.
                other = inputs._replace(ids_T=inputs.ids_T.flip(0))
                passes.inputs.take(other)
                off, noise = self._compare(passes, Launched(run, other, self._parameters, self._spare()))
        except FOREIGN as error:
            # On leaving a capture that failed another error comes; the one before it says why.
            why = error.__context__ if isinstance(error.__context__, FOREIGN) else error
            if isinstance(why, torch.OutOfMemoryError):
                self.why_not[shape] = "memory ran out when its graph was made"
                return False
            if isinstance(why, torch.AcceleratorError) and "captur" not in str(why):
                raise
            # PyTorch's allocator takes no further capture now.
            self._gave_up = self._failed(shape, f"its graph cannot be made ({in_a_line(why)})")
            return False
        if not math.isfinite(noise):
            return False  # of a pass that is not finite nothing can be said; the next one of this shape is tried
        if noise > MOST:
            self._failed(
                shape, f"two launched passes are {noise:.1e} of the gradients' size apart, so that none can be compared"
            )
        elif not off <= max(LEAST, ROOM * noise):
            allowed = max(LEAST, ROOM * noise)
            self._failed(shape, f"a replay is off by {off:.1e} of the gradients' size, {allowed:.1e} allowed")
        else:
            self.off.append(off)
            self._graphs[shape] = passes
            _made["graphs"] += 1
        return shape in self._graphs

    def _failed(self, shape: Shape, why: str) -> str:
        self.why_not[shape] = why
        self.failed.append(why)
        return why

    def _find_parameters(self, run: Run, inputs: Inputs) -> None:
        """The trained weights that the layers' output depends on, and where their gradients will be summed."""
        trained = [p for p in text_decoder(self.model).parameters() if p.requires_grad]
        hidden_TD = run(inputs)
        found = torch.autograd.grad(hidden_TD, trained, torch.zeros_like(hidden_TD), allow_unused=True)
        self._parameters = [p for p, gradient in zip(trained, found, strict=True) if gradient is not None]
        self._standing = self._stands()
        self._sums = self._spare()
        self._anchor = torch.zeros((), device=hidden_TD.device, requires_grad=True)

    def _spare(self) -> list[Tensor]:
        return [torch.zeros_like(p) for p in self._parameters]

    def _compare(self, passes: Passes, launched: Launched) -> tuple[float, float]:
        """How far a replay is off a launched pass, and how far another launched one is. Sums of gradients under way are put
        aside meanwhile, and weights of zeros have values."""
        self.take_over()
        kept, empty = [total.clone() for total in self._sums], []
        try:
            with torch.no_grad():
                empty = [p for p in self._parameters if not p.count_nonzero()]
                for p in empty:
                    p.normal_(0.0, SPREAD)
            return self._off(passes, launched)
        finally:
            with torch.no_grad():
                for p in empty:
                    p.zero_()
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

        once = gradients(launched, list(launched.sums))
        # Twice: what the first replay leaves must not be in the second.
        _, found = (gradients(passes, self._sums) for _ in range(2))
        off, noise = _apart(found, once), 0.0
        # Of this shape: what another one's passes are apart says nothing of it. One draw of what differs by chance may come
        # out small (3.3e-3 of a replay, 1.6e-3 of two passes, seen on an H200), so a replay in doubt gets several.
        for _ in range(LAUNCHED):
            if off <= max(LEAST, ROOM * noise):
                break
            noise = max(noise, _apart(gradients(launched, list(launched.sums)), once))
        return off, noise

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


def _is_there_anyway(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).startswith(THERE_ANYWAY)


def _apart(found: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """The largest distance of two tensors beside the size of the second, by their norms."""
    pairs = list(zip(found, right, strict=True))
    off = torch.stack([(f.float() - r.float()).norm() for f, r in pairs])
    size = torch.stack([r.float().norm() for _, r in pairs])
    return float((off / size.clamp_min(1e-30)).nan_to_num(nan=torch.inf).max())
