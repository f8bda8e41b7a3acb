"""A share of activations for compiled layers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynotune.measure.evidence import Evidence, Phase
from dynotune.speedups.contract import Context, Installation, No, Order, Setting, Speedup
from dynotune.speedups.declared.compiled_layers import KERNELS
from dynotune.speedups.expectation import Expectation, Holds
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site

if TYPE_CHECKING:
    from dynotune.config.whole import WholeConfig


COMPILED = (*KERNELS, "^CompiledFunctionBackward$")


@register
class ActivationBudget(Speedup):
    name = "activation_budget"
    summary = "Lets compiled layers keep a share of their activations and make the cheapest of the rest again."
    proof = "compiled code runs backward, and the compiler's partitioner was given the share."
    order = Order.CHECKPOINTING
    requires = ("compiled_layers",)
    conflicts = ("activation_full", "activation_offload", "activation_selective")

    def asked(self, config: "WholeConfig") -> tuple[Setting, str] | None:
        share = config.activation_memory_budget
        return None if share is None else ("on", f"activation_memory_budget: {share:g}")

    def applicable(self, context: Context) -> No | None:
        if context.config.activation_memory_budget is None:
            return No("no share is given", "set `activation_memory_budget`", expected=True)
        return None

    def install(self, site: Site) -> Installation | No:
        from dynotune.model.activations.budget import set_budget

        share = site.context.config.activation_memory_budget
        assert share is not None
        budget = set_budget(share)
        line = f"activations: compiled layers keep {share:.0%} of them"
        return Installation(budget.uninstall, lines=(line,), detail=budget)

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        def is_read(evidence: Evidence) -> bool | None:
            if not evidence.count(COMPILED, phase=Phase.BACKWARD):
                return False
            known: bool | None = installed.detail.is_read()
            return known

        return [Holds("compiled code ran backward, and its partitioner was given the share", is_read)]
