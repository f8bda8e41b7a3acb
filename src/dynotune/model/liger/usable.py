"""Whether Liger's kernels can be imported. Liger is imported from here, nowhere else."""

from functools import cache

from dynotune.foreign import in_a_line
from dynotune.model.elementwise.usable import Kernels


@cache
def kernels() -> Kernels | str:
    """Liger's kernels in the place of ours, or why they cannot be imported."""
    try:
        import triton
        from liger_kernel.ops import rms_norm
        from triton.errors import TritonError

        from dynotune.model.liger import kernels as liger
    except (ImportError, OSError) as error:  # the latter: a library that it needs is not there
        return f"Liger cannot be imported ({in_a_line(error)})"
    interpreted = not isinstance(rms_norm._rms_norm_forward_kernel, triton.runtime.JITFunction)
    return Kernels(
        liger.RmsNorm,
        liger.Gated,
        liger.GatedHalves,
        liger.Rotary,
        (TritonError, OSError, RuntimeError, AttributeError, TypeError),
        interpreted,
        half_tables=True,
    )
