"""Promise: what the estimate holds while the backward pass works is what lives then: one more tensor of the intermediate
width where LoRA is added in the activation's kernel, inputs under way where layers' inputs are in host memory, all gradients
at the first layer."""

import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor

from dynotune import SFTConfig
from dynotune.estimate.memory import StepMemory
from dynotune.measure.memory import WORKING_COPIES_OF_KERNELS, PerToken, gradients, gradients_but_embedding, per_token
from dynotune.model import lora
from dynotune.model.activations import host
from dynotune.model.activations.host import InHostMemory
from dynotune.model.activations.keeping import Around
from dynotune.model.activations.layers import checkpoint_layers
from dynotune.model.attention import hidden_states, packed_attention
from dynotune.model.attention.decoder import text_decoder
from dynotune.model.elementwise import gate_lora, install
from dynotune.model.precision import Precision
from tests.model.activations.living import HostCopies, Living
from tests.model.activations.passes import batch_of
from tests.model.elementwise.stand_ins import stand_ins
from tests.model.lora.adapted import fill
from tests.speedups.test_lora_in_activation import put_in
from tests.tiny import tiny_model

TOKENS, HIDDEN, WIDE, LAYERS = 1024, 32, 320, 8
INPUT, RESULT = TOKENS * HIDDEN * 4, TOKENS * WIDE * 4
"""Bytes of a layer's input and of what goes into its `down_proj`."""


class Gated(torch.autograd.Function):
    """Makes and keeps the tensors that the kernel does, of no values."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, tanh: bool) -> Tensor:
        ctx.save_for_backward(gate, up)
        return torch.zeros_like(gate)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        gate, up = ctx.saved_tensors
        return torch.zeros_like(gate), torch.zeros_like(up), None


class GatedLora(torch.autograd.Function):
    """The same of the kernel that adds LoRA."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, *rest: Any) -> Tensor:
        ctx.save_for_backward(gate, up, *rest[:6])
        ctx.below = rest[8]
        return torch.zeros_like(gate)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        gate, up, _, _, _, *trained = ctx.saved_tensors
        ctx.below.low_TR, ctx.below.weights = None, ()
        wide, found = (torch.zeros_like(gate), torch.zeros_like(up)), [torch.zeros_like(one) for one in trained]
        return *wide, None, None, None, *found, None, None, None, None


class Layers:
    """Eight of them under fused LoRA, whose gated activation keeps what the kernels keep."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, in_activation: bool) -> None:
        model = tiny_model("qwen2", num_hidden_layers=LAYERS, hidden_size=HIDDEN, intermediate_size=WIDE)
        settings = LoraConfig(r=2, lora_alpha=2, target_modules="all-linear")
        self.model: Any = get_peft_model(model, settings).train()
        fill(self.model)
        lora.install(self.model, torch.float32)
        install(self.model, torch.float32, kernels=stand_ins())
        for fused in gate_lora.candidates(self.model).values():
            fused.function = Gated.apply
        self.copies = WORKING_COPIES_OF_KERNELS
        if in_activation:
            monkeypatch.setattr(gate_lora, "_why_different", lambda *args: None)
            at: Any = SimpleNamespace(model=self.model, context=SimpleNamespace(live=True))
            installed: Any = put_in(monkeypatch, at, GatedLora.apply)
            self.copies += installed.wide_in_backward

    def run(self, tokens: int) -> Tensor:
        return hidden_states(self.model, batch_of((tokens - 8,), tokens))

    def counted(self) -> PerToken:
        with packed_attention(self.model):
            return per_token(self.model, self.run, torch.float32, self.copies)

    def lives(self) -> tuple[int, int]:
        """Bytes behind the forward pass, and at most in the backward pass."""
        self.model.zero_grad(set_to_none=True)
        gc.collect()
        with packed_attention(self.model), Living(self.model) as living:
            loss = self.run(TOKENS).square().mean()
            kept, living.most = living.now, 0
            loss.backward()
        return kept, living.most


def test_lora_in_the_activation_holds_one_wide_tensor_more_than_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control is the plain kernel, with whose count the other's would be a wide tensor short."""
    found = {}
    for inside in (False, True):
        layers = Layers(monkeypatch, inside)
        kept, most = layers.lives()
        counted = layers.counted()
        assert counted.kept * TOKENS == pytest.approx(kept, abs=3 * INPUT)
        assert counted.bytes * TOKENS == pytest.approx(most, abs=3 * INPUT)
        found[inside] = kept, most, counted.bytes * TOKENS
    (kept, most, estimate), (fewer, less, lower) = found[False], found[True]
    assert kept - fewer == pytest.approx(LAYERS * RESULT, abs=INPUT), "results of the activation are not kept"
    assert most - less == pytest.approx((LAYERS - 1) * RESULT, abs=INPUT), "and one of them is missed where it was free"
    assert estimate - lower == pytest.approx(most - less, abs=INPUT)
    assert lower - RESULT < less - 6 * INPUT, "without the declaration the estimate would be short of it"


@pytest.mark.parametrize("under_way", [0, 3, 100])
def test_inputs_in_host_memory_are_those_at_work_and_those_under_way(
    monkeypatch: pytest.MonkeyPatch, under_way: int
) -> None:
    """Against layers whose inputs all stay: what the estimates differ by is what lives less. The control: so many bytes
    under way do not fit an estimate without them."""
    layers = Layers(monkeypatch, in_activation=True)
    counted = layers.counted()
    checkpoint_layers(layers.model, {})
    _, all_here = layers.lives()
    monkeypatch.setattr(host, "UNDER_WAY", under_way * INPUT)
    full, away = counted.under("full"), counted.under("offload")
    ahead = away.ahead_of(TOKENS)
    assert ahead == min(under_way, LAYERS - 1) * INPUT
    Around(text_decoder(layers.model), InHostMemory(HostCopies(), least=64, under_way=under_way * INPUT)).put_in()
    kept, most = layers.lives()
    assert kept < 4 * INPUT, "they are away when the forward pass is done"
    less = TOKENS * (full.bytes - away.bytes) - ahead
    # Gradients come while inputs go where all are here. Else those of nearly all layers are beside the inputs at work.
    less -= gradients(layers.model).bytes if under_way < LAYERS else 0
    assert all_here - most == pytest.approx(less, abs=INPUT // 2)


def test_all_gradients_are_there_at_the_first_layer() -> None:
    """Where a layer's gradients are more than what it keeps of few tokens, the peak is at the end of the backward pass; the
    control has more tokens, and its peak at the beginning."""
    model: Any = tiny_model("llama", num_hidden_layers=LAYERS, hidden_size=64, tie_word_embeddings=False).train()
    embedding = model.get_input_embeddings().weight
    late = gradients(model).bytes - embedding.nbytes
    assert gradients_but_embedding(model).bytes == late
    counted = PerToken(LAYERS * 1000, 0, 500, "as given", layers=LAYERS, inputs=LAYERS * 256)
    memory = StepMemory(model, SFTConfig(), Precision(torch.float32, False), counted, torch.float32)

    def bytes_of(tokens: int) -> dict[str, int]:
        return {part.name: part.bytes for part in memory.parts(tokens, 0.0, packed=True, accumulates=False)}

    few, many = bytes_of(64), bytes_of(6400)
    assert (few["gradients"], few["activations"]) == (late, 64 * (1000 + 500))
    assert (many["gradients"], many["activations"]) == (0, 6400 * (LAYERS * 1000 + 500))
    model.requires_grad_(False)
    assert gradients_but_embedding(model).bytes == 0
