"""LoRA linears as one autograd function each, or one for all that share their input."""

from collections.abc import Sequence
from contextlib import nullcontext

from dynotune.measure.evidence import Evidence, Phase
from dynotune.speedups.contract import Context, Installation, No, Order, Speedup
from dynotune.speedups.expectation import Expectation, Expected, Holds
from dynotune.speedups.linears import standing
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site


@register
class FusedLora(Speedup):
    name = "fused_lora"
    summary = (
        "Computes a LoRA linear in one function: shared input read once, no float32 round trips, epilogue additions."
    )
    touches = ("LoRA",)
    proof = "its function at every group of linears, forward and backward; in compiled layers, in their graphs."
    order = Order.LORA
    requires = ("packed_execution",)

    def applicable(self, context: Context) -> No | None:
        return None if context.has_adapter else No("there is no adapter", expected=True)

    def install(self, site: Site) -> Installation | No:
        from dynotune.model import lora

        adapters = lora.install(
            site.model, site.context.compute, once=lambda look: site.once("inputs that LoRA linears share", look)
        )
        if not adapters.linears:
            adapters.uninstall()
            reasons = sorted(set(adapters.others.values()))
            return No("; ".join(reasons) or "the adapter has no LoRA linear")
        autocast = site.autocast
        if not adapters.needs_autocast:
            site.autocast = nullcontext

        def uninstall() -> None:
            adapters.uninstall()
            site.autocast = autocast

        return standing(adapters, uninstall)

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        from dynotune.model.compiled.layers import compiled_layer_of

        linears = installed.detail.linears
        compiled = [name for name in installed.places if compiled_layer_of(context.model, name)]
        at = tuple(name for name in installed.places if name not in compiled)

        def in_graph(evidence: Evidence) -> bool:
            return all(linears[name].in_graph for name in compiled)

        expected: list[Expectation] = []
        if at:
            expected += [
                Expected("LoRA function", Phase.FORWARD, operators=("^LoraLinears$",), at=at),
                Expected("LoRA function", Phase.BACKWARD, operators=("^LoraLinearsBackward$",), at=at),
            ]
        if compiled:  # the function is a part of each layer's graph, and no event any more
            expected.append(Holds("the LoRA function is in the graphs of compiled layers", in_graph))
        return expected
