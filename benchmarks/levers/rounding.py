"""LoRA in the gated activation rounds less often: is a whole model's gradient as near to float32 as without it?

Of 28 layers with random weights, where roundings of the first layers are felt in all others: the gradients of bfloat16 are
9 % off by their norms, in both ways, and so are the two ways of each other. Which of them is nearer says who is right.
"""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from benchmarks.levers.bench import Bench, Row, off
from benchmarks.levers.graph import Step
from dynotune.model.attention.backends import KERNELS
from dynotune.model.attention.segments import segments_of
from dynotune.model.elementwise import gate_lora
from dynotune.model.packed import PackedBatch
from dynotune.model.step_graphs import Launched
from dynotune.model.step_graphs.passes import Inputs, Shape, layers_of

WORSE = 1.1
"""How much further off than without it may be, in the mean of all weights."""


def rounding_rows(bench: Bench) -> Iterator[Row]:
    step = Step(bench)
    tokens = 64 if bench.rehearse else 258
    batch = step.batch(bench, tokens, 1)
    step.attention.backend = "fa3" if not bench.rehearse and KERNELS["fa3"].missing() is None else "reference"
    with step.attention.engaged():
        own, again = (gradients(bench, step, batch) for _ in range(2))
        with in_the_activation(bench, step):
            inside = gradients(bench, step, batch)
    exact = in_float32(bench, step, batch)
    found = {"own": own, "own again": again, "inside": inside}
    errors = {way: [off(f, e) for f, e in zip(one, exact, strict=True)] for way, one in found.items()}
    means = {way: statistics.mean(one) for way, one in errors.items()}
    yield {
        "part": "rounding", "case": f"{step.decoder.config.num_hidden_layers} layers, {tokens} tokens", "errors": errors,
        "means": means, "ok": means["inside"] <= max(WORSE * means["own"], 1e-4), "floor_ms": 0.0, "ways": {},
    }  # fmt: skip


@contextmanager
def in_the_activation(bench: Bench, step: Step) -> Iterator[None]:
    """Inside, LoRA's parts of wide tensors are added by the gated activation's kernel. Raises where none was."""
    function = gate_lora.reference
    if not bench.rehearse:
        from dynotune.model.elementwise.triton_gate_lora import GatedLora

        function = GatedLora.apply
    found = gate_lora.candidates(step.model)
    between = {name: gate_lora.adapters_between(fused, function, gate_lora.MOST_RANK) for name, fused in found.items()}
    if wrong := sorted({one for one in between.values() if isinstance(one, str)}):
        raise RuntimeError("; ".join(wrong))
    standing = [one for one in between.values() if not isinstance(one, str)]
    for one in standing:
        one.fused.adapters = one
    try:
        yield
    finally:
        for one in standing:
            one.fused.adapters = None
    if not (standing or bench.rehearse) or any(one.calls == 0 or one.aside.calls for one in standing):
        raise RuntimeError("LoRA in the gated activation stepped aside")


def gradients(bench: Bench, step: Step, batch: PackedBatch) -> list[Tensor]:
    """Of a sum of hidden states by fixed random weights: these states, then of each trained weight; on the host."""
    segments = segments_of(batch.boundaries_S1, batch.lengths)
    inputs = Inputs(batch.ids_T, batch.positions_T, segments.boundaries_S1)
    shape = Shape(len(batch.ids_T), len(segments.boundaries_S1), segments.longest, step.attention.backend)
    layers, weights = layers_of(step.decoder, shape), trained(step)

    def run(given: Inputs) -> Tensor:
        with torch.autocast(bench.device.type, torch.bfloat16, enabled=not bench.rehearse, cache_enabled=False):
            return layers(given)

    passes = Launched(run, inputs, weights, [torch.zeros_like(p) for p in weights])
    passes.forward()
    passes.gradient_TD.copy_(cotangent(passes.hidden_TD))
    passes.backward()
    return [passes.hidden_TD.cpu(), *(total.cpu() for total in passes.sums)]


def trained(step: Step) -> list[Tensor]:
    return [p for p in step.decoder.parameters() if p.requires_grad]


def cotangent(hidden_TD: Tensor) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(hidden_TD.shape, generator=draw).to(hidden_TD.device, hidden_TD.dtype)


def in_float32(bench: Bench, step: Step, batch: PackedBatch) -> list[Tensor]:
    """Document by document, by the modules' own operations. The model is float32 afterwards."""
    for module in step.model.modules():
        module.__dict__.pop("forward", None)  # what stands in for it
    step.model.float()
    step.decoder.config._attn_implementation = "sdpa"
    weights, hidden, first = trained(step), [], 0
    sums = [torch.zeros_like(p) for p in weights]
    drawn = torch.empty(len(batch.ids_T), step.decoder.config.hidden_size, device=bench.device, dtype=bench.low)
    whole = cotangent(drawn).float()
    for length in batch.lengths:
        own = slice(first, first + length)
        ids, places = batch.ids_T[None, own], batch.positions_T[None, own]
        out = step.decoder(input_ids=ids, position_ids=places, use_cache=False).last_hidden_state[0]
        torch._foreach_add_(sums, list(torch.autograd.grad(out, weights, whole[own])))
        hidden.append(out.detach())
        first += length
    return [torch.cat(hidden).cpu(), *(total.cpu() for total in sums)]
