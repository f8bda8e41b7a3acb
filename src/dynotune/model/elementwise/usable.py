"""Whether the kernels can run on a device. Triton is imported here and in what is imported from here, nowhere else."""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from dynotune.foreign import in_a_line

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Kernels:
    """The autograd functions of this package, where Triton can be imported."""

    rms_norm: Any
    gated: Any
    gated_halves: Any
    rotary: Any
    failures: tuple[type[Exception], ...]
    """What a Triton that does not fit this machine raises: no compiler, no driver, another version's language."""

    on_cpu: bool
    """Triton's interpreter runs (TRITON_INTERPRET=1), which is for tests."""

    sum_rms_norm: Any = None
    """A sum and its RMSNorm in one; None where somebody else's kernels have none."""

    half_tables: bool = False
    """`rotary` reads the first half of each row of the tables only, and takes the second for the same."""


@cache
def kernels() -> Kernels | str:
    """The kernels, or why they cannot be imported."""
    try:
        import triton
        from triton.errors import TritonError

        from dynotune.model.elementwise import triton_gate, triton_norm, triton_rotary, triton_sum_norm
    except ImportError as error:
        return f"Triton cannot be imported ({error})"
    interpreted = not isinstance(triton_norm.dynotune_rms_norm_forward, triton.runtime.JITFunction)
    return Kernels(
        triton_norm.RmsNorm,
        triton_gate.Gated,
        triton_gate.GatedHalves,
        triton_rotary.Rotary,
        (TritonError, OSError, RuntimeError, AttributeError, TypeError),
        interpreted,
        sum_rms_norm=triton_sum_norm.SumRmsNorm,
    )


def usable(device: torch.device) -> Kernels | str | None:
    """The kernels for `device`, why they cannot be used there, or None where there is nothing to be said: no GPU.

    Tried once a process and device, in float32.
    """
    found = kernels()
    if device.type != "cuda":
        return found if isinstance(found, Kernels) and found.on_cpu and device.type == "cpu" else None
    if isinstance(found, str):
        return found
    return _tried(device) or found


@cache
def _tried(device: torch.device) -> str | None:
    found = kernels()
    assert isinstance(found, Kernels)
    try:
        off = _disagreement(found, device)
    except found.failures as error:
        return f"Triton does not work here ({in_a_line(error)})"
    return None if off < 1e-5 else f"Triton's kernels are wrong here (off by {off:.2g})"


def _disagreement(found: Kernels, device: torch.device) -> float:
    """Largest difference of the forward kernel from RMSNorm's formula. Waits for the device.

    One kernel is enough to see whether Triton works; what each computes is compared on the model's own modules.
    """
    x = torch.linspace(-2, 3, 5 * 48, device=device).view(5, 48)
    weight = torch.linspace(0.5, 1.5, 48, device=device)
    right = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    # Twice: the second launch goes the short way.
    both: list[Tensor] = [found.rms_norm.apply(x, weight, 1e-6, 0.0, True) for _ in range(2)]
    return float((torch.stack(both) - right).abs().amax().nan_to_num(nan=torch.inf))
