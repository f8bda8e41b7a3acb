"""Numbers that a probe draws, by the name of a parameter: the same in both arms, whatever the order and precision there."""

from zlib import crc32

import torch
from torch import Tensor, nn

SPREAD = 0.02
"""Standard deviation of what is drawn, as models draw their own weights."""

OFF = 0.02
"""Of a weight's own spread: how far a policy is moved off its reference. Where the two are the same, every pair's loss is
ln 2 whatever an arm does."""


ON_HOST = 1 << 22
"""Elements: larger tensors are drawn on their own device, where billions of numbers take no minutes."""


def normal(name: str, p: Tensor, seed: int) -> Tensor:
    """Of the shape of `p`, float32, on its device. A smaller one is the same on every device."""
    device = p.device if p.numel() > ON_HOST else torch.device("cpu")
    generator = torch.Generator(device).manual_seed(crc32(f"{seed} {name}".encode()))  # the host's takes 32 bits only
    return torch.randn(p.shape, generator=generator, device=device).to(p.device)


@torch.no_grad()
def draw_weights(model: nn.Module, seed: int) -> None:
    """Matrices of a model whose weights are random anyway: a library draws others in another precision. They are numbers
    of bfloat16, so that every precision holds the same."""
    for name, p in model.named_parameters():
        if p.dim() > 1 and p.is_floating_point():
            p.copy_((SPREAD * normal(name, p, seed)).bfloat16())


@torch.no_grad()
def draw_adapter(model: nn.Module, seed: int) -> bool:
    """LoRA's factors, both: where B is zero, as a new adapter's, the gradient of A is zero and shows nothing. Returns
    whether there are any."""
    drawn = False
    for name, p in model.named_parameters():
        if p.requires_grad and "lora_" in name:
            p.copy_(SPREAD * normal(name, p, seed))
            drawn = True
    return drawn


@torch.no_grad()
def move_off(model: nn.Module, seed: int) -> None:
    """Noise on trained matrices."""
    for name, p in model.named_parameters():
        if p.requires_grad and p.dim() > 1:
            p.add_((OFF * p.float().std() * normal(name, p, seed)).to(p.dtype))
