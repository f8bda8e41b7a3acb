"""RMSNorm by Liger's kernel."""

from dynotune.speedups.liger import LigerElementwise
from dynotune.speedups.registry import register


@register
class LigerRmsNorm(LigerElementwise):
    name = "liger_rms_norm"
    summary = "Computes an RMSNorm by Liger's kernel, one each way."
    slot = "rms_norm"
    ours = "rms_norm_kernel"
    keys = ("rms_norm",)
    module_kind = "RMSNorm"
    functions = "LigerRMSNormFunction"
    kernels = ("_(block_)?rms_norm_forward_kernel", "_(block_)?rms_norm_backward_kernel")
