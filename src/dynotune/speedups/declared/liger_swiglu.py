"""Gated activations (SwiGLU, GeGLU) by Liger's kernels."""

from dynotune.speedups.liger import LigerElementwise
from dynotune.speedups.registry import register


@register
class LigerSwiglu(LigerElementwise):
    name = "liger_swiglu"
    summary = (
        "Multiplies a gate's activation with the other half by Liger's kernel, one each way, which keeps no product."
    )
    slot = "gated_activation"
    ours = "gated_activation_kernel"
    keys = ("swiglu", "geglu")
    module_kind = "gated activation"
    functions = "LigerGated(Halves)?"
    kernels = (
        "_(swiglu(_fused_gate_up)?|geglu_tanh)_forward_kernel",
        "_(swiglu(_fused_gate_up)?|geglu_tanh)_backward_kernel",
    )
