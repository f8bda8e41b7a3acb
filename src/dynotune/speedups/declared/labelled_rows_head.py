"""Only rows with a label meet the head, and full logits never exist."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dynotune.measure.evidence import Evidence, Phase, Source
from dynotune.speedups.contract import Context, Installation, No, Order, Speedup
from dynotune.speedups.expectation import Expectation, Expected, Holds
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site

GIVEN = ("^Formed$", "^FormedBySequence$", "^RecomputedBySequence$")
"""The autograd functions that hand gradients over: formed in the forward pass, or by sequence, with a trained head when they
are asked for."""


@register
class LabelledRowsHead(Speedup):
    name = "labelled_rows_head"
    summary = "Computes logits of label tokens only, in chunks, and their gradient at once; full logits never exist."
    touches = ("head and loss",)
    proof = "its row kernel once in each micro-batch, its gradient handed over; no logits of tokens without a label."
    order = Order.HEAD
    slot = "head"
    requires = ("packed_execution",)

    def applicable(self, context: Context) -> No | None:
        return None

    def install(self, site: Site) -> Installation | No:
        from dynotune.config.keys.preference import PreferenceConfig

        assert site.head is not None
        site.labelled_rows = True

        def uninstall() -> None:
            site.labelled_rows = False

        @contextmanager
        def without() -> Iterator[None]:
            was, site.labelled_rows = site.labelled_rows, False
            try:
                yield
            finally:
                site.labelled_rows = was

        by_sequence = isinstance(site.context.config, PreferenceConfig)
        lines = site.head.describe_sequences() if by_sequence else site.head.describe()
        return Installation(uninstall, lines=tuple(lines), without=without)

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        from dynotune.speedups.absences import full_logits

        def once(evidence: Evidence) -> bool:
            """Once in each micro-batch."""
            return all(
                evidence.count(GIVEN, source=Source.OPERATOR, phase=Phase.FORWARD, micro_batch=i) == 1
                for i in range(evidence.micro_batches)
            )

        return [
            Expected("row kernel", Phase.FORWARD, kernels=("^dynotune_head_rows",), operators=GIVEN),
            Expected(
                "gradient handed over",
                Phase.BACKWARD,
                operators=tuple(name.replace("$", "Backward$") for name in GIVEN),
            ),
            Holds("a loss for each micro-batch", once),
            full_logits(),
        ]
