"""Whether a kernel computes what a module computes: seen on random inputs, forward and gradients, never read from a name."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

EXACT = 1e-5
"""Relative L2 distance that float32 arithmetic in another order, with other last bits of exponentials, explains."""

SLACK = 1.5
"""In lower precision: the kernel's distance from float32 in multiples of the module's own (promise P2)."""

Function = Callable[..., Tensor | tuple[Tensor, ...]]
Dtypes = Sequence[torch.dtype]


def random(shape: Sequence[int], seed: int, device: torch.device) -> Tensor:
    """Standard normal float32 of a generator of its own, on the device: the run's random state stays as it is, and a host
    takes 0.1 s to draw what one layer of a 7B is compared on."""
    where = torch.device("cpu") if device.type == "meta" else device
    return torch.randn(tuple(shape), generator=torch.Generator(where).manual_seed(seed), device=where).to(device)


def why_different(
    own: Function, ours: Function, inputs: Sequence[Tensor], wants: Sequence[bool], low: Dtypes
) -> str | None:
    """How `ours` differs from `own` on `inputs` (float32), or None. Waits for the device.

    `wants`: which inputs get a gradient that is compared. `low`: the dtype of each input in the second comparison, which is
    in working precision and held against `own` in float32 on the same rounded values. Both must give the same dtypes.
    """
    with torch.enable_grad(), torch.autocast(inputs[0].device.type, enabled=False):
        full = [torch.float32] * len(inputs)
        exact = _run(own, inputs, wants, full)
        worst = _distance(_run(ours, inputs, wants, full), exact)
        if not worst <= EXACT:
            return f"it computes something else (float32 results differ by {worst:.1e} of their size)"
        if list(low) == full:
            return None
        rounded = [x.to(dtype).float() for x, dtype in zip(inputs, low, strict=True)]
        exact, theirs = _run(own, rounded, wants, full), _run(own, rounded, wants, low)
        mine = _run(ours, rounded, wants, low)
    if [x.dtype for x in mine] != [x.dtype for x in theirs]:
        return f"it gives {theirs[0].dtype} where the kernel gives {mine[0].dtype}"
    for a, b, right in zip(mine, theirs, exact, strict=True):
        error, allowed = _distance([a], [right]), max(EXACT, SLACK * _distance([b], [right]))
        if not error <= allowed:
            return f"the kernel's rounding is larger than its own ({error:.1e} against {allowed:.1e} allowed)"
    return None


def _run(function: Function, inputs: Sequence[Tensor], wants: Sequence[bool], dtypes: Dtypes) -> list[Tensor]:
    """Outputs, then the gradients of what is wanted, of a fixed random cotangent."""
    leaves = [x.to(dtype, copy=True).requires_grad_(want) for x, dtype, want in zip(inputs, dtypes, wants, strict=True)]
    out = function(*leaves)
    outputs = out if isinstance(out, tuple) else (out,)
    cotangents = [random(y.shape, 100 + i, y.device).to(y.dtype) for i, y in enumerate(outputs)]
    wanted = [x for x, want in zip(leaves, wants, strict=True) if want]
    return [y.detach() for y in outputs] + list(torch.autograd.grad(outputs, wanted, cotangents))


def _distance(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    """The largest relative L2 distance; NaN where there is one."""
    distances = [(x.float() - y.float()).norm() / y.float().norm() for x, y in zip(a, b, strict=True)]
    return float(torch.stack(distances).amax())
