"""Documents of a step side by side in few forward passes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynotune.measure.evidence import Evidence, Phase
from dynotune.speedups.contract import Context, Installation, No, Order, Scope, Setting, Site, Speedup
from dynotune.speedups.expectation import Expectation, Expected, Holds
from dynotune.speedups.registry import register

if TYPE_CHECKING:
    from dynotune.config.sft import SFTConfig

PROBED_TOKENS = 16
"""Tokens on which the head is compared with the model's own."""

EMBEDDING = ("^aten::embedding$",)


@register
class PackedExecution(Speedup):
    name = "packed_execution"
    summary = "Lays the documents of a step side by side, isolated from each other, in as few forward passes as fit."
    scope = Scope.PLAN
    order = Order.EXECUTION

    def asked(self, config: "SFTConfig") -> tuple[Setting, str] | None:
        return config.packed_execution, f"packed_execution: {config.packed_execution}"

    def applicable(self, context: Context) -> No | None:
        from dynotune.model.attention.structure import why_not_by_structure

        return _no(context, why_not_by_structure(context.model, context.longest))

    def install(self, site: Site) -> Installation | No:
        """Packed against alone on a few tiny documents, on the model itself; then its head against the model's own."""
        import torch

        from dynotune.model.attention import examine
        from dynotune.model.head import find_head

        context, model = site.context, site.model
        examined = examine(model, longest=context.longest, autocast=site.autocast)
        no = _no(context, examined.reason)
        if no is not None:
            return no
        with site.autocast():
            found = find_head(model, torch.arange(1, 1 + PROBED_TOKENS, device=context.device))
        if found.head is None:
            no = _no(context, found.why_not)
            assert no is not None
            return no
        site.packed, site.head = True, found.head

        def uninstall() -> None:
            site.packed, site.head = False, None

        embedding = model.get_input_embeddings()
        places = [name for name, module in model.named_modules() if module is embedding]
        return Installation(uninstall, tuple(places[:1]), lines=tuple(examined.says))

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        def once(evidence: Evidence) -> bool | None:
            passes = [
                evidence.count(EMBEDDING, phase=Phase.FORWARD, at=place, micro_batch=i)
                for place in installed.places
                for i in range(evidence.micro_batches)
            ]
            return all(n == 1 for n in passes) if passes else None

        return [
            Expected("a pass through the layers", Phase.FORWARD, operators=EMBEDDING, at=installed.places),
            Holds("one pass through the layers for all documents of a micro-batch", once),
        ]


def _no(context: Context, reason: str | None) -> No | None:
    from dynotune.model.base import base_of

    if reason is None:
        return None
    name = type(base_of(context.model)).__name__
    return No(f"{name} cannot be packed: {reason}")
