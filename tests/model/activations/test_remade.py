"""Promise: results of cheap operations that are made again are the same bits, and no matrix product runs twice."""

import sys
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dynotune.measure.memory import saved_bytes
from dynotune.model import elementwise, lora
from dynotune.model.activations.cheap import Cheap, remake_cheap
from dynotune.model.attention.decoder import text_decoder
from tests.model.activations.passes import batch_of, differ, model_of, pass_of, state_of
from tests.model.elementwise.stand_ins import stand_ins

KINDS = ("llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "olmo2", "phi3")


def put_in(model: Any) -> Cheap:
    found = remake_cheap(model, text_decoder(model), torch.float32)
    assert isinstance(found, Cheap), found
    return found


class Counted(TorchDispatchMode):
    """How often each operation ran."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        self.calls[name] = self.calls.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_and_back_again(kind: str, lora: bool) -> None:
    model = model_of(kind, lora, dropout=0.2 if kind == "llama" else 0.0)
    right, before = pass_of(model, passes=2), state_of(model)
    cheap = put_in(model)
    assert len(cheap.kinds["gated activations"]) == 2
    assert cheap.kinds["norms"]
    assert differ(pass_of(model, passes=2), right) == []
    # with dropout a LoRA linear keeps what it dropped out of its input, and not the input
    assert bool(cheap.remaking.not_kept) != (lora and kind == "llama")
    cheap.uninstall()
    cheap.uninstall()
    assert state_of(model) == before
    assert differ(pass_of(model, passes=2), right) == []


@pytest.mark.parametrize("full_under_autocast", [False, True])
def test_under_kernels(full_under_autocast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: kernels keep what they are made from, and the linear's input is made again from that."""
    monkeypatch.setattr(sys.modules["dynotune.model.elementwise.install"], "usable", lambda device: stand_ins())
    compute = torch.bfloat16 if full_under_autocast else torch.float32
    model = model_of("qwen3", not full_under_autocast)
    adapters = None if full_under_autocast else lora.install(model, compute)
    kernels = elementwise.install(model, compute)
    right, before = pass_of(model, autocast=full_under_autocast), state_of(model)
    cheap = put_in(model)
    assert differ(pass_of(model, autocast=full_under_autocast), right) == []
    assert cheap.remaking.not_kept
    cheap.uninstall()
    assert state_of(model) == before
    kernels.uninstall()
    if adapters:
        adapters.uninstall()


def test_norms_and_activations_run_again_and_products_do_not() -> None:
    model = model_of("llama", False)
    with Counted() as plain:
        pass_of(model)
    cheap = put_in(model)
    with Counted() as again:
        pass_of(model)
    assert again.calls["rsqrt"] >= 2 * plain.calls["rsqrt"] - 1  # the last norm's result is not a linear's input here
    assert again.calls["silu"] >= 2 * plain.calls["silu"]
    assert {n: c for n, c in again.calls.items() if "mm" in n} == {n: c for n, c in plain.calls.items() if "mm" in n}
    cheap.uninstall()


def test_less_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What autograd holds, by the bytes alive between forward and backward."""
    from dynotune.model.attention import hidden_states, packed_attention

    monkeypatch.setattr(sys.modules["dynotune.model.elementwise.install"], "usable", lambda device: stand_ins())
    model = model_of("llama", False)
    batch = batch_of(tokens=128)
    cheap = put_in(model)
    cheap.around.take_out()
    with packed_attention(model):
        plain = saved_bytes(model, lambda: hidden_states(model, batch))
        cheap.around.put_in()
        hidden_states(model, batch).sum().backward()
    per_layer = 128 * (2 * 32 + 64) * 4  # two norms' results and the activation's
    assert cheap.remaking.not_kept == 2 * per_layer
    assert cheap.remaking.not_kept < plain
    cheap.uninstall()


def test_a_result_or_what_it_is_made_from_that_is_written_to_is_an_error() -> None:
    model = model_of("llama", False)
    cheap = put_in(model)
    batch = batch_of()
    from dynotune.model.attention import hidden_states, packed_attention

    held: list[torch.Tensor] = []
    handle = model.model.layers[0].input_layernorm.register_forward_pre_hook(lambda m, a: held.append(a[0]))
    with packed_attention(model):
        loss = hidden_states(model, batch).sum()
        with torch.no_grad():
            held[0].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    handle.remove()
    cheap.uninstall()


def test_evaluation_keeps_nothing_and_notes_nothing() -> None:
    model = model_of("llama", False).eval()
    cheap = put_in(model)
    with torch.no_grad():
        model(input_ids=torch.ones(1, 4, dtype=torch.long))
    assert not cheap.remaking._known
    cheap.uninstall()


def test_a_model_without_gated_activations_says_so() -> None:
    model = model_of("starcoder2", False)
    before = state_of(model)
    assert isinstance(remake_cheap(model, text_decoder(model), torch.float32), str)
    assert state_of(model) == before
