"""AdamW's states in 8 bits. No switch but a part of what is learned, by `optim`: here so that it is proved and labelled."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynotune.config.fates.names import EIGHT_BIT_OPTIMIZERS
from dynotune.measure.evidence import Evidence, Phase, Source
from dynotune.speedups.contract import Context, Installation, Kind, No, Order, Scope, Setting, Speedup
from dynotune.speedups.expectation import Expectation, Expected, Holds
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site

if TYPE_CHECKING:
    from dynotune.config.whole import WholeConfig

KERNELS = ("kOptimizerStatic8bit2StateBlockwise",)
"""bitsandbytes', one launch a weight."""

OPERATORS = ("^bitsandbytes::optimizer_update_8bit_blockwise$",)


@register
class EightBitOptimizer(Speedup):
    name = "eight_bit_optimizer"
    summary = "Keeps AdamW's two moments in 8 bits each (bitsandbytes), for a quarter of their memory."
    proof = "bitsandbytes' kernel of 8 bits in the update, once for each weight that has such states, and their type."
    touches = ("optimizer",)
    kind = Kind.BEHAVIOURAL
    default = "off"
    scope = Scope.STEP
    order = Order.STEP
    follows = "optim"

    def asked(self, config: "WholeConfig") -> tuple[Setting, str] | None:
        return "on" if config.optim in EIGHT_BIT_OPTIMIZERS else "off", f"optim: {config.optim}"

    def applicable(self, context: Context) -> No | None:
        if context.config.optim in EIGHT_BIT_OPTIMIZERS:
            return None
        return No(f"`optim: {context.config.optim}` keeps its states in float32", expected=True)

    def install(self, site: Site) -> Installation | No:
        """The optimizer is made by `optim`, whoever stands: this counts what it must keep in 8 bits."""
        from dynotune.model.eight_bit_states import counted, smallest

        small = smallest(site.context.config.optim_args)
        found, of = counted(site.model, small)
        if not found:
            return No(
                f"each of the {of} weights that are trained is an embedding or has fewer than {small:,} elements, and its"
                " states stay in float32",
                no_place=True,
            )
        # Only now that they are counted: where none has 8 bits, weights move as by float32 states.
        said = (
            f"behavioural: `optim: {site.context.config.optim}` keeps the states of {found} of {of} weights in 8 bits: these"
            " move otherwise than by float32 states, which embeddings and small ones have"
        )
        return Installation(lambda: None, lines=(said,), detail=(found, of))

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        found, of = installed.detail

        def kept(evidence: Evidence) -> bool | None:
            told = evidence.facts.get("states_of_8_bits")
            return None if told is None else 0 < told[0] == told[1]

        def each(evidence: Evidence) -> bool | None:
            patterns, source = (KERNELS, Source.KERNEL) if evidence.device == "cuda" else (OPERATORS, Source.OPERATOR)
            told = evidence.facts.get("states_of_8_bits")
            seen = evidence.count(patterns, source=source, phase=Phase.UPDATE)
            return None if told is None else 0 < told[0] <= seen

        return [
            Expected("update of 8 bits", Phase.UPDATE, kernels=KERNELS, operators=OPERATORS),
            Holds("each weight with such states is updated by it", each),
            # Of a weight without a gradient there are no states at all.
            Holds(f"states have 8 bits in each of the {found} of {of} weights that had a gradient", kept),
        ]
