"""Promise: on a GPU replayed passes are the launched ones, to the bit where attention adds in one order, whatever of the
adapters runs beside; a capture that fails leaves a process that trains on.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from dynotune.model.attention import hidden_states, packed_attention, text_decoder
from dynotune.model.attention.segments import Segments, segments_of
from dynotune.model.branches import IN_LINE, KINDS, Kind, fork
from dynotune.model.compiled import decoder_layers
from dynotune.model.lora import install as install_lora
from dynotune.model.packed import PackedBatch, pack
from dynotune.model.step_graphs import Captured, Launched, Pool, StepGraphs
from dynotune.model.step_graphs.passes import Inputs, Run
from tests.model.lora.adapted import fill
from tests.tiny import tiny_model

SHAPE = {"hidden_size": 256, "intermediate_size": 640, "head_dim": 64, "num_hidden_layers": 3}
TOKENS, LENGTHS = 128, (70, 41, 17)
NOISE = 2e-2
"""Relative, of a gradient in bfloat16."""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
each_kind = pytest.mark.parametrize("kind", KINDS)


def model_in(dtype: torch.dtype) -> Any:
    """With a float32 adapter on all linears, B not zero, and LoRA fused."""
    base = tiny_model("qwen2", attn_implementation="eager", **SHAPE).to(dtype)
    model: Any = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules="all-linear"))
    fill(model)
    model = model.to("cuda").train()
    install_lora(model, dtype)
    return model


def trained(model: Any) -> list[Tensor]:
    return [p for p in text_decoder(model).parameters() if p.requires_grad]


def batch_of(seed: int, lengths: Sequence[int] = LENGTHS, tokens: int = TOKENS) -> PackedBatch:
    draws = np.random.default_rng(seed)
    documents = [(ids := draws.integers(2, 340, n, dtype=np.int32), ids) for n in lengths]
    return pack(documents, tokens, torch.device("cuda"))


def inputs_of(batch: PackedBatch) -> Inputs:
    return Inputs(batch.ids_T, batch.positions_T, segments_of(batch.boundaries_S1, batch.lengths).boundaries_S1)


def exact_run(model: Any) -> Run:
    """Attention of documents of `LENGTHS`, one after another, written out: in float32, adding in one order."""
    decoder = text_decoder(model)

    def run(inputs: Inputs) -> Tensor:
        keywords = Segments(inputs.boundaries_S1, TOKENS, LENGTHS).keywords()
        with sdpa_kernel(SDPBackend.MATH):
            out = decoder(
                input_ids=inputs.ids_T[None], position_ids=inputs.positions_T[None], use_cache=False,
                attention_backend="reference", **keywords,
            )  # fmt: skip
        hidden_1TD: Tensor = out.last_hidden_state
        return hidden_1TD.squeeze(0)

    return run


def zeros_like(weights: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(weight) for weight in weights]


def both_passes(passes: Any, inputs: Inputs, gradient_TD: Tensor, sums: Sequence[Tensor]) -> list[Tensor]:
    """Hidden states, and the sums as they are then."""
    passes.inputs.take(inputs)
    passes.forward()
    hidden_TD = passes.hidden_TD.clone()
    passes.gradient_TD.copy_(gradient_TD)
    passes.backward()
    return [hidden_TD, *(total.clone() for total in sums)]


@each_kind
def test_in_float32_replays_of_many_inputs_are_the_launched_passes_to_the_bit(kind: Kind) -> None:
    model = model_in(torch.float32)
    weights, run = trained(model), exact_run(model)
    mine, theirs = zeros_like(weights), zeros_like(weights)
    batches = [inputs_of(batch_of(seed)) for seed in range(4)]
    with packed_attention(model, "reference"):
        launched = Launched(run, batches[0].copies(), weights, theirs)
        captured = Captured(run, batches[0].copies(), weights, mine, Pool(), kind)
        seen: list[list[Tensor]] = []
        for inputs in batches * 5:
            gradient_TD = torch.randn_like(launched.gradient_TD)
            right = both_passes(launched, inputs, gradient_TD, theirs)
            found = both_passes(captured, inputs, gradient_TD, mine)
            assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))
            seen.append(found)
    assert not torch.equal(seen[0][0], seen[1][0]), "control: other inputs give something else"


@each_kind
def test_graphs_of_several_shapes_share_their_memory_and_stay_right(kind: Kind) -> None:
    """Weights are updated in between, as training does; each graph is replayed behind others."""
    model = model_in(torch.float32)
    weights, run, pool = trained(model), exact_run(model), Pool()
    mine, theirs = zeros_like(weights), zeros_like(weights)
    inputs = inputs_of(batch_of(0))
    with packed_attention(model, "reference"):
        launched = Launched(run, inputs.copies(), weights, theirs)
        several = [Captured(run, inputs.copies(), weights, mine, pool, one) for one in (kind, "none", kind)]
        for step in range(4):
            for captured in several:
                gradient_TD = torch.randn_like(launched.gradient_TD)
                right = both_passes(launched, inputs_of(batch_of(step)), gradient_TD, theirs)
                found = both_passes(captured, inputs_of(batch_of(step)), gradient_TD, mine)
                assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))
            with torch.no_grad():
                torch._foreach_mul_(weights, 1.01)


def graphs_of(model: Any, kind: Kind) -> StepGraphs:
    pool = Pool()
    return StepGraphs(model, lambda run, inputs, weights, sums: Captured(run, inputs, weights, sums, pool, kind))


def gradients_of(model: Any, batches: Sequence[Any], layers: Callable[..., Tensor]) -> list[Tensor]:
    """Sums over `batches`, as a run has them: under autocast."""
    model.zero_grad(set_to_none=True)
    for i, batch in enumerate(batches):
        with torch.autocast("cuda", torch.bfloat16):
            hidden_TD = layers(model, batch)
        weights_TD = torch.randn(hidden_TD.shape, generator=torch.Generator("cuda").manual_seed(i), device="cuda")
        (hidden_TD.float() * weights_TD).sum().backward()
    return [p.grad.clone() for p in trained(model) if p.grad is not None]


def off(found: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    assert len(found) == len(right) > 0
    largest = max(float(r.norm()) for r in right)
    return max(float((f - r).norm()) / max(float(r.norm()), 1e-3 * largest) for f, r in zip(found, right, strict=True))


@each_kind
def test_in_bfloat16_sums_of_micro_batches_are_near_those_of_launched_ones(kind: Kind) -> None:
    model = model_in(torch.bfloat16)
    batches = [batch_of(1), batch_of(2, (60, 50)), batch_of(3, (150, 30), 192)]
    with packed_attention(model):
        right = gradients_of(model, batches, hidden_states)
        graphs = graphs_of(model, kind)
        for _ in range(3):
            assert off(gradients_of(model, batches, graphs.hidden_states), right) < NOISE
        assert off(gradients_of(model, batches[:2], graphs.hidden_states), right) > NOISE, "control"
    assert not graphs.failed
    assert len(graphs.shapes) == 2
    assert graphs.launched == 0


@each_kind
def test_weights_that_move_or_are_frozen_are_captured_again_and_hooks_are_called(kind: Kind) -> None:
    model = model_in(torch.bfloat16)
    batch, heard = batch_of(1), list[str]()
    with packed_attention(model):
        graphs = graphs_of(model, kind)
        gradients_of(model, [batch], graphs.hidden_states)
        for p in text_decoder(model).parameters():
            p.data = p.data.clone()
        moved = gradients_of(model, [batch], graphs.hidden_states)
        assert off(moved, gradients_of(model, [batch], hidden_states)) < NOISE
        trained(model)[0].requires_grad_(False)
        frozen = gradients_of(model, [batch], graphs.hidden_states)
        assert off(frozen, gradients_of(model, [batch], hidden_states)) < NOISE
        assert len(frozen) == len(moved) - 1
        handle = next(text_decoder(model).children()).register_forward_hook(lambda *_: heard.append("module"))
        hooked = gradients_of(model, [batch], graphs.hidden_states)
        handle.remove()
        assert off(gradients_of(model, [batch], graphs.hidden_states), hooked) < NOISE
    assert heard == ["module"]
    assert len(graphs.off) == 3
    assert not graphs.failed


class Breaks(torch.autograd.Function):
    """Where a graph is captured, in its forward or backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, how: str) -> Tensor:
        ctx.how = how
        if how.startswith("forward"):
            _break(how, x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        if ctx.how.startswith("backward"):
            _break(ctx.how, grads[0])
        return grads[0], None


def _break(how: str, x: Tensor) -> None:
    if torch.cuda.is_current_stream_capturing():
        if how.endswith("waits"):
            x.sum().item()
        raise ValueError("broken in the middle")


@contextmanager
def breaking(model: Any, how: str) -> Iterator[None]:
    """The middle layer's output."""

    def hook(module: Any, args: Any, out: Any) -> Any:
        whole = isinstance(out, Tensor)
        broken: Any = Breaks.apply(out if whole else out[0], how)
        return broken if whole else (broken, *out[1:])

    handle = list(decoder_layers(model).values())[1].register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@each_kind
@pytest.mark.parametrize("how", ["forward raises", "backward raises", "forward waits", "backward waits"])
def test_a_capture_that_fails_leaves_a_process_that_trains_on(how: str, kind: Kind) -> None:
    model = model_in(torch.float32)
    weights, run, inputs = trained(model), exact_run(model), inputs_of(batch_of(0))
    sums, theirs = zeros_like(weights), zeros_like(weights)
    with packed_attention(model, "reference"):
        launched = Launched(run, inputs.copies(), weights, theirs)
        gradient_TD = torch.randn_like(launched.gradient_TD)
        right = both_passes(launched, inputs, gradient_TD, theirs)
        with breaking(model, how), pytest.raises((ValueError, RuntimeError)) as raised:
            Captured(run, inputs.copies(), weights, sums, Pool(), kind)
        told = [str(one) for one in (raised.value, raised.value.__context__)]
        assert any("broken in the middle" in one or "captur" in one for one in told), told
        assert fork(gradient_TD) is IN_LINE
        assert bool(torch.randn(4, device="cuda").isfinite().all()), "what draws still does"
        torch.cuda.synchronize()
        for total in theirs:
            total.zero_()
        found = both_passes(launched, inputs, gradient_TD, theirs)
        assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))
        if how.endswith("raises"):  # nothing that CUDA minds: another graph can be made
            captured = Captured(run, inputs.copies(), weights, sums, Pool(), kind)
            found = both_passes(captured, inputs, gradient_TD, sums)
            assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))


def test_copies_of_other_threads_are_made_while_a_graph_is_captured() -> None:
    """PyTorch gives its 32 streams out in turn. A copy on the very one that is captured would become part of the graph."""
    model = model_in(torch.float32)
    weights, run, inputs = trained(model), exact_run(model), inputs_of(batch_of(0))
    streams = [torch.cuda.Stream() for _ in range(40)]
    host = torch.arange(1 << 12).pin_memory()
    stop, arrived, wrong = threading.Event(), [0], [0]

    def copies() -> None:
        while not stop.is_set():
            for stream in streams:
                with torch.cuda.stream(stream):
                    there = torch.zeros(1 << 12, dtype=torch.int64, device="cuda")
                    there.copy_(host, non_blocking=True)
                    done = stream.record_event()
                    done.synchronize()
                    arrived[0] += 1
                    wrong[0] += not torch.equal(there.cpu(), host)  # on this stream too, as everything of the feed

    thread = threading.Thread(target=copies)
    with packed_attention(model, "reference"):
        thread.start()
        try:
            Captured(run, inputs.copies(), weights, zeros_like(weights), Pool(), "all")
        finally:
            stop.set()
            thread.join()
    assert arrived[0] >= len(streams)
    assert wrong[0] == 0
