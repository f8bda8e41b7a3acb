"""Gated activations (SwiGLU, GeGLU) by a kernel of ours."""

from dynotune.speedups.elementwise import ElementwiseKernel
from dynotune.speedups.registry import register


@register
class GatedActivationKernel(ElementwiseKernel):
    name = "gated_activation_kernel"
    summary = "Multiplies a gate's activation with the other half in one kernel each way, and keeps no product."
    slot = "gated_activation"
    module_kind = "gated activation"
    functions = "Gated(Halves|Lora)?"
    kernels = ("dynotune_gated(_lora)?_forward", "dynotune_gated(_lora)?_backward")
