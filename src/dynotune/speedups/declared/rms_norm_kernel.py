"""RMSNorm by a kernel of ours."""

from dynotune.speedups.contract import Context
from dynotune.speedups.elementwise import ElementwiseKernel
from dynotune.speedups.registry import register, speedups


@register
class RmsNormKernel(ElementwiseKernel):
    name = "rms_norm_kernel"
    summary = "Computes an RMSNorm in one kernel each way."
    slot = "rms_norm"
    module_kind = "RMSNorm"
    functions = "(Sum)?RmsNorm"
    kernels = ("dynotune_(sum_)?rms_norm_forward", "dynotune_(sum_)?rms_norm_backward")

    def may_round_in(self, context: Context) -> bool:
        """Where linears of one input are one function: apart, their gradients would be added up in low precision."""
        fused = speedups()["fused_linears"]
        return context.config.speedups.get(fused.name) != "off" and fused.applicable(context) is None
