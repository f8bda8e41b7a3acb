"""Promise: on a GPU a model in bfloat16 runs on the kernels, as near to float32 as without them."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from dynotune.model import linears, residual
from dynotune.model.elementwise import gate_lora, install
from dynotune.model.elementwise.only_cast import let_round
from dynotune.model.lora import install as install_lora
from tests.model.lora.adapted import IDS, fill, gap
from tests.tiny import tiny_model

SHAPE = {"hidden_size": 256, "intermediate_size": 640, "head_dim": 64}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def gradients(model: Any) -> dict[str, torch.Tensor]:
    model.zero_grad()
    ids = IDS.to("cuda")
    model(input_ids=ids, labels=ids).loss.backward()
    return {name: p.grad.float() for name, p in model.named_parameters()}


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gemma3_text", "phi3"])
def test_a_model_in_bfloat16(kind: str) -> None:
    exact: Any = tiny_model(kind, **SHAPE).to("cuda").train()
    model: Any = tiny_model(kind, **SHAPE).to("cuda", torch.bfloat16).train()
    exact.load_state_dict({name: p.float() for name, p in model.state_dict().items()})
    right, own = gradients(exact), gradients(model)
    engaged = install(model, torch.bfloat16)
    assert not any(engaged.others.values()), engaged.lines()
    assert len(engaged.lines()) == 1
    found = gradients(model)
    assert engaged.calls_to_own == 0
    errors = [sum(gap(g[name], right[name]) for name in right) for g in (found, own)]
    assert errors[0] < 1.5 * errors[1]
    engaged.uninstall()
    assert all(gap(g, own[name]) < 1e-2 for name, g in gradients(model).items())


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text", "phi3"])
def test_sums_in_norms_of_a_model_in_bfloat16(kind: str) -> None:
    exact: Any = tiny_model(kind, **SHAPE).to("cuda").train()
    model: Any = tiny_model(kind, **SHAPE).to("cuda", torch.bfloat16).train()
    exact.load_state_dict({name: p.float() for name, p in model.state_dict().items()})
    right = gradients(exact)
    engaged = install(model, torch.bfloat16)
    own = gradients(model)
    sums = residual.install(model, torch.bfloat16)
    assert len(sums.norms) == 4
    found = gradients(model)
    assert engaged.calls_to_own == sums.aside.calls == 0
    errors = [sum(gap(g[name], right[name]) for name in right) for g in (found, own)]
    assert errors[0] < 1.2 * errors[1], "the sum of gradients is rounded once and not twice"


def adapted(kind: str, dtype: torch.dtype, rank: int) -> Any:
    base = tiny_model(kind, **SHAPE).to(dtype)
    model = get_peft_model(base, LoraConfig(r=rank, lora_alpha=16, target_modules="all-linear"))
    fill(model)  # on the CPU, where it draws
    return model.to("cuda").train()


def trained(model: Any) -> dict[str, torch.Tensor]:
    model.zero_grad()
    ids = IDS.to("cuda")
    model(input_ids=ids, labels=ids).loss.backward()
    return {name: p.grad.float() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("rank", [8, 20, 32])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3_text"])
def test_adapters_that_the_kernel_adds_are_as_near_to_float32(kind: str, rank: int) -> None:
    from dynotune.model.elementwise.triton_gate_lora import GatedLora

    def without_gates_adapter(*args: Any) -> Any:
        return GatedLora.apply(*args[:3], torch.zeros_like(args[3]), *args[4:])  # type: ignore[no-untyped-call]

    exact, model = adapted(kind, torch.float32, rank), adapted(kind, torch.bfloat16, rank)
    exact.load_state_dict({name: p.float() for name, p in model.state_dict().items()})
    right = trained(exact)
    install_lora(model, torch.bfloat16)
    install(model, torch.bfloat16)
    own = trained(model)
    for fused in gate_lora.candidates(model).values():
        between = gate_lora.adapters_between(fused, GatedLora.apply, gate_lora.MOST_RANK)
        assert isinstance(between, gate_lora.AdaptersBetween), between
        fused.adapters = between
    found = trained(model)
    assert all(fused.adapters and fused.adapters.calls == 1 for fused in gate_lora.candidates(model).values())
    errors = [sum(gap(g[name], right[name]) for name in right) for g in (found, own)]
    assert errors[0] < 1.5 * errors[1]
    for fused in gate_lora.candidates(model).values():
        assert fused.adapters is not None
        fused.adapters.function = without_gates_adapter
    wrong = trained(model)
    assert sum(gap(wrong[name], right[name]) for name in right) > 3 * errors[1], "the control: a part is not added"


def under_autocast(model: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    ids = IDS.to("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gemma3_text", "phi3"])
def test_full_training_under_autocast(kind: str) -> None:
    """Kernels, then rounded results, then fused linears: each as near to float32 as the model's own operations."""
    model: Any = tiny_model(kind, **SHAPE).to("cuda").train()
    right, (_, own) = gradients(model), under_autocast(model)
    engaged = install(model, torch.bfloat16)
    written, _ = under_autocast(model)
    for of in ("RMSNorm", "rotary embedding"):
        assert let_round(model, engaged.fused[of], torch.bfloat16)
    loss, rounded = under_autocast(model)
    assert torch.equal(loss, written), "a result that is rounded as it is written has the same bits"
    fused = linears.install(model, torch.bfloat16)
    assert not fused.others
    _, found = under_autocast(model)
    sums = residual.install(model, torch.bfloat16)
    loss, summed = under_autocast(model)
    assert torch.equal(loss, written), "a sum in the norm behind it has the same bits, and so has the norm"
    errors = [sum(gap(g[name], right[name]) for name in right) for g in (own, rounded, found, summed)]
    assert max(errors[1:]) < 1.5 * errors[0]
    assert engaged.calls_to_own == fused.aside.calls == sums.aside.calls == 0
    assert len(sums.norms) == 4
    assert all(linear.wide for linear in fused.linears.values())
