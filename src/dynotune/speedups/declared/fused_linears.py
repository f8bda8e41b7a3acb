"""Trained linears as one autograd function each, or one for all that share their input."""

from collections.abc import Sequence

from dynotune.measure.evidence import Phase
from dynotune.speedups.contract import Context, Installation, No, Order, Speedup
from dynotune.speedups.expectation import Expectation, Expected
from dynotune.speedups.left_out import faults_of
from dynotune.speedups.linears import standing
from dynotune.speedups.one_gpu import untried_on_several
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site


@register
class FusedLinears(Speedup):
    name = "fused_linears"
    summary = (
        "Computes linears that are trained in one function: shared input cast once, gradients from the product in the"
        " precision of the weights."
    )
    touches = ("copies", "GEMM")
    proof = "its function at every group of linears, forward and backward."
    order = Order.LORA
    requires = ("packed_execution",)
    conflicts = ("compiled_layers",)  # which casts and adds in the kernels around products

    def applicable(self, context: Context) -> No | None:
        import torch

        if not context.on_gpu:
            return No("there is no GPU", expected=True)
        if context.has_adapter:
            return No("there is an adapter, and weights below it are not trained", expected=True)
        if context.compute == torch.float32:
            return No("products are in float32, and nothing is cast", expected=True)
        return untried_on_several(context, self.name)

    def install(self, site: Site) -> Installation | No:
        from dynotune.model import linears

        engaged = linears.install(
            site.model, site.context.compute, once=lambda look: site.once("inputs that trained linears share", look)
        )
        if not engaged.linears:
            engaged.uninstall()
            faults = faults_of(engaged.others)
            reason = "; ".join(faults) or "its layers have no linear that is trained"
            return No(reason, expected=not faults, no_place=not faults)
        return standing(engaged, engaged.uninstall)

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        at = installed.places
        return [
            Expected("linear function", Phase.FORWARD, operators=("^TrainedLinears$",), at=at),
            Expected("linear function", Phase.BACKWARD, operators=("^TrainedLinearsBackward$",), at=at),
        ]
