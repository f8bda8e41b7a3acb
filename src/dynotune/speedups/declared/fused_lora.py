"""LoRA linears as one autograd function each, or one for all that share their input."""

from collections.abc import Sequence
from contextlib import nullcontext

from dynotune.measure.evidence import Phase
from dynotune.speedups.contract import Context, Installation, No, Order, Site, Speedup
from dynotune.speedups.expectation import Expectation, Expected
from dynotune.speedups.registry import register


@register
class FusedLora(Speedup):
    name = "fused_lora"
    summary = (
        "Computes a LoRA linear in one function: shared input read once, no float32 round trips, epilogue additions."
    )
    order = Order.LORA
    requires = ("packed_execution",)

    def applicable(self, context: Context) -> No | None:
        return None if context.has_adapter else No("there is no adapter", expected=True)

    def install(self, site: Site) -> Installation | No:
        from dynotune.model import lora

        adapters = lora.install(site.model, site.context.compute)
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

        return Installation(
            uninstall,
            places=tuple(adapters.leaders()),  # linears that share an input are computed in the first one's call
            left_out=tuple(f"{name}: {why}" for name, why in adapters.others.items()),
            lines=tuple(adapters.lines()),
            aside=adapters.aside,
            forwards=adapters.forwards,
        )

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        at = installed.places
        return [
            Expected("LoRA function", Phase.FORWARD, operators=("^LoraLinears$",), at=at),
            Expected("LoRA function", Phase.BACKWARD, operators=("^LoraLinearsBackward$",), at=at),
        ]
