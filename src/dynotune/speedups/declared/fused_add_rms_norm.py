"""The sum of a residual and a branch by the kernel of the RMSNorm that follows it."""

from collections.abc import Sequence

from dynotune.measure.evidence import Phase
from dynotune.speedups.contract import Context, Installation, No, Order, Speedup
from dynotune.speedups.expectation import Expectation, Expected
from dynotune.speedups.left_out import excepted_of, faults_of, left_out_of
from dynotune.speedups.one_gpu import untried_on_several
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site


@register
class FusedAddRmsNorm(Speedup):
    name = "fused_add_rms_norm"
    summary = (
        "Adds a layer's branch to the residual inside the kernel of the RMSNorm that follows, of the next layer too, and"
        " adds their gradients there."
    )
    touches = ("norms and elementwise", "copies")
    proof = "its kernels at every norm where it stands, forward and backward."
    order = Order.LORA  # the kernels of norms stand by then
    requires = ("packed_execution", "rms_norm_kernel")
    conflicts = ("compiled_layers", "activation_full", "activation_offload")  # compiled, or computed again one by one
    gives_way = True  # to the policies, where memory is short

    def applicable(self, context: Context) -> No | None:
        return untried_on_several(context, self.name)

    def install(self, site: Site) -> Installation | No:
        from dynotune.model import residual
        from dynotune.model.activations.layers import are_checkpointed

        if are_checkpointed(site.model):
            return No("its layers are computed again in the backward pass, one by one", expected=True)
        engaged = residual.install(
            site.model, site.context.compute, once=lambda look: site.once("sums that norms take", look)
        )
        if not engaged.norms:
            engaged.uninstall()
            faults = faults_of(engaged.others)
            reason = "; ".join(faults) or "no RMSNorm of the model takes a sum in a layer's code"
            return No(reason, expected=not faults, no_place=not faults)
        return Installation(
            engaged.uninstall,
            places=tuple(engaged.norms),
            left_out=left_out_of(engaged.others),
            excepted=excepted_of(engaged.others),
            lines=tuple(engaged.lines()),
            aside=engaged.aside,
            forwards=engaged.forwards,
            detail=engaged,
        )

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        what, at = "sum in the RMSNorm kernel", installed.places
        forward, backward = "^dynotune_sum_rms_norm_forward", "^dynotune_sum_rms_norm_backward"
        return [
            Expected(what, Phase.FORWARD, kernels=(forward,), operators=("^SumRmsNorm$",), at=at),
            Expected(what, Phase.BACKWARD, kernels=(backward,), operators=("^SumRmsNormBackward$",), at=at),
        ]
