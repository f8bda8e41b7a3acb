"""Rotary embeddings by a kernel of ours."""

from dynotune.speedups.contract import Context
from dynotune.speedups.elementwise import ElementwiseKernel
from dynotune.speedups.registry import register


@register
class RotaryKernel(ElementwiseKernel):
    name = "rotary_kernel"
    summary = "Rotates queries and keys in one kernel each way."
    slot = "rotary"
    module_kind = "rotary embedding"
    functions = "Rotary"
    kernels = ("dynotune_rotary", "dynotune_rotary")

    def may_round_in(self, context: Context) -> bool:
        return True
