"""The optimizer's update as one kernel over many tensors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynotune.measure.evidence import Phase
from dynotune.speedups.contract import Context, Installation, No, Order, Scope, Setting, Speedup
from dynotune.speedups.expectation import Expectation, Expected
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site

if TYPE_CHECKING:
    from dynotune.config.whole import WholeConfig

KERNELS = {"adamw_torch_fused": "FusedAdam", "adamw_torch": "FusedAdam", "sgd": "FusedSgd"}
"""By `optim`: the functor in the name of PyTorch's kernel."""

OPERATORS = {"adamw_torch_fused": "aten::_fused_adamw", "adamw_torch": "aten::_fused_adamw", "sgd": "aten::_fused_sgd"}


@register
class FusedOptimizer(Speedup):
    name = "fused_optimizer"
    summary = "Updates all weights in a few kernels, which leave a step that is not finite out without asking the host."
    touches = ("optimizer",)
    proof = "PyTorch's fused kernel in the update, and no wait of the host there."
    scope = Scope.STEP
    order = Order.STEP

    def asked(self, config: "WholeConfig") -> tuple[Setting, str] | None:
        if "fused=False" in (config.optim_args or "").replace(" ", ""):
            return "off", f"optim_args: {config.optim_args}"
        return None

    def applicable(self, context: Context) -> No | None:
        config = context.config
        if config.optim not in KERNELS:
            return No(f"PyTorch has no fused kernel for `optim: {config.optim}`", "set `optim: adamw_torch_fused`")
        if config.optim == "sgd" and "dampening" in (config.optim_args or ""):
            return No("fused SGD with dampening cannot leave a first step out that is not finite", "take dampening out")
        return None

    def install(self, site: Site) -> Installation | No:
        site.fused_update = True

        def uninstall() -> None:
            site.fused_update = False

        return Installation(uninstall)

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        from dynotune.speedups.absences import host_waits

        optim = context.config.optim
        found = Expected(
            "fused update", Phase.UPDATE, kernels=(f"{KERNELS[optim]}",), operators=(f"^{OPERATORS[optim]}_$",)
        )
        return [found, host_waits(Phase.UPDATE)]
