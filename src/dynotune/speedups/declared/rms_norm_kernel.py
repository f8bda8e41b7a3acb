"""RMSNorm by a kernel of ours."""

from dynotune.speedups.elementwise import ElementwiseKernel
from dynotune.speedups.registry import register


@register
class RmsNormKernel(ElementwiseKernel):
    name = "rms_norm_kernel"
    summary = "Computes an RMSNorm in one kernel each way."
    slot = "rms_norm"
    module_kind = "RMSNorm"
    may_round = True
    functions = "RmsNorm"
    kernels = ("dynotune_rms_norm_forward", "dynotune_rms_norm_backward")
