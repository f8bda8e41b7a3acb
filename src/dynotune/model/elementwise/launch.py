"""Launching a Triton kernel with few Python operations. Imported only where Triton is wanted.

In each launch Triton works out anew which variant of a kernel the arguments ask for: about 10 microseconds of the host (3.6,
driver left out). Here variants are kept by what they can differ in, and called as Triton itself calls them.
"""

from typing import Any

import torch
import triton
from torch import Tensor

KNOWN = ("3.6.",)
"""Versions of Triton whose way of calling a compiled kernel is the one below. Others launch the public way."""

ALIGN = 15
"""Bits of an address that are 0 where Triton compiles for pointers that are multiples of 16 bytes."""


class Launch:
    """`Launch(kernel)(programs, tensors, numbers, constants, warps)`: arguments of `kernel` in its order.

    `numbers` must be named in the kernel's `do_not_specialize`, or be floats: a variant fits all of their values. Integers
    among them are below 2^31. Hooks that others gave to Triton (its profiler Proton) do not see launches after the first.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.ready: dict[tuple[Any, ...], tuple[Any, Any, Any]] = {}

    def __call__(
        self,
        programs: int,
        tensors: tuple[Tensor, ...],
        numbers: tuple[float, ...],
        constants: tuple[Any, ...],
        warps: int,
    ) -> None:
        device = tensors[0].get_device()
        key = (device, warps, constants, *[x.dtype for x in tensors])
        addresses = [x.data_ptr() for x in tensors]
        bits = 0
        for address in addresses:
            bits |= address
        ready = self.ready.get(key)
        if ready is not None and not bits & ALIGN:
            run, function, metadata = ready
            stream = torch._C._cuda_getCurrentRawStream(device)
            run(programs, 1, 1, stream, function, metadata, None, None, None, *addresses, *numbers, *constants)
            return
        compiled = self.kernel[(programs,)](*tensors, *numbers, *constants, num_warps=warps)
        if not bits & ALIGN and compiled is not None and triton.__version__.startswith(KNOWN):
            self.ready[key] = compiled.run, compiled.function, compiled.packed_metadata
