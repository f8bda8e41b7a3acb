"""Documents of a step side by side in few forward passes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynotune.measure.evidence import Evidence, Phase, Source
from dynotune.speedups.contract import Context, Installation, No, Order, Scope, Setting, Speedup
from dynotune.speedups.expectation import Expectation, Holds
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site

if TYPE_CHECKING:
    from dynotune.config.whole import WholeConfig

PROBED_TOKENS = 16
"""Tokens on which the head is compared with the model's own."""

EMBEDDING = ("^aten::embedding$",)


@register
class PackedExecution(Speedup):
    name = "packed_execution"
    summary = "Lays the documents of a step side by side, isolated from each other, in as few forward passes as fit."
    touches = ("GEMM", "attention", "head and loss", "norms and elementwise", "LoRA", "copies", "idle: host")
    proof = "one pass through the layers for all documents of a micro-batch; no mask of all tokens by all tokens."
    scope = Scope.PLAN
    order = Order.EXECUTION

    def asked(self, config: "WholeConfig") -> tuple[Setting, str] | None:
        return config.execution_asked

    def applicable(self, context: Context) -> No | None:
        from dynotune.model.attention.structure import why_not_by_structure

        return _no(context, why_not_by_structure(context.model, context.longest))

    def install(self, site: Site) -> Installation | No:
        """Packed against alone on a few tiny documents, on the model itself; then its head against the model's own."""
        import torch

        from dynotune.model.attention import Examination, examine, text_decoder
        from dynotune.model.head import Found, find_head

        context, model = site.context, site.model

        def tried_out() -> Examination:
            return examine(
                model,
                longest=context.longest,
                autocast=site.autocast,
                backend=site.attention,
                shared=site.shared_beginnings,
            )

        def head_found() -> Found:
            with site.autocast():
                return find_head(model, torch.arange(1, 1 + PROBED_TOKENS, device=context.device))

        examined = site.once("packed", tried_out)
        no = _no(context, examined.reason)
        if no is not None:
            return no
        found = site.once("head", head_found)
        if found.head is None:
            no = _no(context, found.why_not)
            assert no is not None
            return no
        site.packed, site.head = True, found.head

        def uninstall() -> None:
            site.packed, site.head = False, None

        modules = list(text_decoder(model).modules())
        # A LoRA of a table looks its own factor up, which is no module.
        lookups = sum(isinstance(module, torch.nn.Embedding) for module in modules)
        lookups += sum(len(getattr(module, "lora_embedding_A", ())) for module in modules)
        return Installation(uninstall, lines=tuple(examined.says), detail=lookups)

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        def once(evidence: Evidence) -> bool | None:
            """By the lookups of embeddings, of which a pass makes at least one and at most one of each table."""
            passes = [
                evidence.count(EMBEDDING, source=Source.OPERATOR, phase=Phase.FORWARD, micro_batch=i)
                for i in range(evidence.micro_batches)
            ]
            if evidence.micro_batches >= evidence.facts.get("documents", 0):
                # A document each, as plainly; but the plain path takes its length as it is, and the ladder has even counts.
                rungs = all(tokens == round_up(tokens) for tokens in evidence.facts.get("tokens", ()))
                return None if rungs else False
            return all(0 < lookups <= installed.detail for lookups in passes)

        from dynotune.plan.ladder import round_up
        from dynotune.speedups.absences import dense_masks

        return [
            Holds("one pass through the layers for all documents of a micro-batch", once),
            dense_masks(),
        ]


def _no(context: Context, reason: str | None) -> No | None:
    from dynotune.model.base import base_of

    if reason is None:
        return None
    name = type(base_of(context.model)).__name__
    return No(f"{name} cannot be packed: {reason}")
