"""Liger's fused linear cross entropy in the place of our head."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dynotune.measure.evidence import Phase
from dynotune.speedups.contract import Context, Installation, No, Order
from dynotune.speedups.expectation import Expectation, Expected
from dynotune.speedups.liger import LigerKernel, ligers_kernels
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site

FUNCTION = "LigerFusedLinearCrossEntropyFunction"


@register
class LigerCrossEntropy(LigerKernel):
    name = "liger_cross_entropy"
    summary = "Forms the loss and its gradient by Liger's fused linear cross entropy, of label tokens only."
    touches = ("head and loss",)
    proof = "Liger's loss kernel, its gradient handed over; no logits of tokens without a label."
    order = Order.HEAD
    slot = "head"
    ours = "labelled_rows_head"
    keys = ("fused_linear_cross_entropy", "cross_entropy")
    of_the_layers = False

    def install(self, site: Site) -> Installation | No:
        from dynotune.config.keys.objective import SFTObjectiveConfig
        from dynotune.model.liger.head import LigerHead, why_not
        from dynotune.objectives.sft import SFTObjective

        config = site.context.config
        if not isinstance(config, SFTObjectiveConfig):
            return No("a preference loss needs log-probabilities by sequence, which it does not give", expected=True)
        kernels = ligers_kernels(site.context)
        if isinstance(kernels, No):
            return kernels
        before = site.head
        assert before is not None
        reason = why_not(before, SFTObjective(config).row_loss, site.context.compute)
        if reason is not None:
            return No(reason)
        mine = LigerHead(before.module, before.logits, before.vocabulary)
        site.head, site.labelled_rows = mine, True

        def uninstall() -> None:
            if site.head is mine:
                site.head, site.labelled_rows = before, False

        @contextmanager
        def without() -> Iterator[None]:
            uninstall()
            try:
                yield
            finally:
                site.head, site.labelled_rows = mine, True

        return Installation(uninstall, lines=(*mine.describe(), self.beside_ours(site.context)), without=without)

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        from dynotune.speedups.absences import full_logits

        return [
            Expected(
                "row kernel", Phase.FORWARD, kernels=("^liger_cross_entropy_kernel",), operators=(f"^{FUNCTION}$",)
            ),
            Expected("gradient handed over", Phase.BACKWARD, operators=(f"^{FUNCTION}Backward$",)),
            full_logits(),
        ]
