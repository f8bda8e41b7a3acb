"""Whether compiling is expected to pay in a run, before anything is compiled: by figures that were measured.

What compiled layers save is memory traffic of elementwise operations, so it grows with tokens, width and number of layers.
What they cost is a number of graphs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """As measured on one kind of GPU, for one way of training."""

    saved: float
    """Seconds saved by token, layer and element of the hidden state, against our own kernels; negative where it costs."""

    graph_seconds: float
    """Seconds to compile a graph, forward and backward, with nothing on disk."""

    source: str
    """The result that it comes from, under `benchmarks/results/`."""

    tokens: int = 16_384
    """A step, at which it was measured."""


FIGURES: Mapping[tuple[str, Literal["full", "lora"]], Figure] = {
    # 827.1 ms beside 799.6 and 800.5 of our kernels, at 16,384 tokens of 28 layers and 3,584 elements.
    ("NVIDIA H200", "lora"): Figure(-1.64e-11, 3.9, "benchmarks/results/h200_compile.json"),
    # 304.8 ms beside 325.2 of our kernels, in spreads that touch (297 to 318 beside 316 to 328), at 16,384 tokens of 8
    # layers whose float32 weights are computed with in bfloat16; 32.6 GiB beside 36.3.
    ("NVIDIA H200", "full"): Figure(4.34e-11, 9.6, "benchmarks/results/h200_compile_full.json"),
}
"""By the GPU's name as PyTorch gives it. At 258 tokens, where the host decides, compiled layers took 83 ms beside 96 and
108, in spreads that overlap (76 to 107 beside 84 to 125): no figure is made of that."""


NEAR = 4
"""Times as many or few tokens a step up to which a figure says something of a step. By the same file compiled layers were
faster at 2,048 tokens, which the host decides: 113 ms beside 133 and 135."""


def why_not_faster(gpu: str, adapter: bool, tokens: float) -> str | None:
    """The end of a sentence where it was measured to gain nothing on such a GPU in such steps; else None.

    tokens: processed ones of a step, a device.
    """
    figure = FIGURES.get((gpu, "lora" if adapter else "full"))
    if figure is None or figure.saved > 0 or not figure.tokens / NEAR <= tokens <= figure.tokens * NEAR:
        return None
    return f"at {figure.tokens:,} tokens a step it was not faster than our own kernels on this GPU ({figure.source})"


@dataclass(frozen=True, slots=True)
class Work:
    """What a run will do."""

    steps: int
    tokens_a_step: float
    """Processed tokens: padding included."""

    graphs: int
    layers: int
    hidden: int


def why_not_worth(figure: Figure | None, work: Work) -> str | None:
    """Why compiling is not expected to pay in a run, as the end of a sentence; None where it is."""
    if figure is None:
        return "nobody has measured what it saves on this device"
    saved_a_step = figure.saved * work.tokens_a_step * work.layers * work.hidden
    if saved_a_step <= 0:
        return f"it is not faster here ({figure.source})"
    cost = figure.graph_seconds * work.graphs
    steps = cost / saved_a_step
    if steps > work.steps:
        return (
            f"compiling takes about {cost:.0f} s, which the run's {work.steps:,} steps would not win back: that takes about"
            f" {steps:,.0f} ({figure.source})"
        )
    return None
