"""Small models with an adapter whose B is not zero, so that every part of a LoRA linear shows in outputs and gradients."""

from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import Linear
from torch import Tensor, nn

from tests.tiny import tiny_model

IDS = torch.arange(7, 47).view(2, 20)


def adapted_model(kind: str = "qwen2", dtype: torch.dtype = torch.float32, seed: int = 0, **lora: Any) -> PeftModel:
    """In training mode, its base in `dtype`, its adapter in float32."""
    settings = {"r": 5, "lora_alpha": 16, "lora_dropout": 0.0, "target_modules": "all-linear", **lora}
    model = get_peft_model(tiny_model(kind, seed).to(dtype), LoraConfig(**settings))  # type: ignore[arg-type]
    fill(model, seed)
    assert isinstance(model, PeftModel)
    return model.train()


def fill(model: nn.Module, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed + 1)
    for name, p in model.named_parameters():
        if "lora_B" in name:
            p.data = torch.randn(p.shape, generator=generator).to(p.dtype) * 0.05


def adapted_linear(dtype: torch.dtype = torch.float32, bias: bool = True, **lora: Any) -> Linear:
    """One lora.Linear of 24 inputs and 40 outputs, as PEFT makes it."""
    torch.manual_seed(0)
    settings = {"r": 5, "lora_alpha": 16, "lora_dropout": 0.0, "target_modules": ["0"], **lora}
    holder = get_peft_model(nn.Sequential(nn.Linear(24, 40, bias=bias)).to(dtype), LoraConfig(**settings))  # type: ignore[arg-type]
    fill(holder)
    module = holder.base_model.model[0]
    assert isinstance(module, Linear)
    return module.train()


def loss_and_gradients(model: Any, ids: Tensor = IDS, autocast: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return loss.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def gap(a: Tensor, b: Tensor) -> float:
    """Relative distance of `a` from `b`."""
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).norm() / b.norm().clamp_min(1e-30))


def largest_gap(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    assert a.keys() == b.keys()
    assert a
    return max(gap(a[name], b[name]) for name in a)
