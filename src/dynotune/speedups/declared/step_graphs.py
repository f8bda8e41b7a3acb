"""The layers of small micro-batches as CUDA graphs: the host launches two, where it launched thousands of kernels."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dynotune.measure.evidence import Evidence
from dynotune.plan.truncation import predicting
from dynotune.speedups.activation import asked_policy
from dynotune.speedups.contract import Context, Installation, No, Order, Scope, Speedup
from dynotune.speedups.expectation import Expectation, Holds
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site

if TYPE_CHECKING:
    from torch import Tensor

    from dynotune.model.step_graphs import StepGraphs


@register
class StepGraphsSpeedup(Speedup):
    name = "step_graphs"
    summary = (
        "Replays the layers of a small micro-batch as two CUDA graphs, forward and backward, where the host would launch"
        " thousands of kernels."
    )
    touches = ("idle: host",)
    proof = (
        "each graph's hidden states and gradients are those of the same pass launched one by one, and micro-batches were"
        " replayed before the traced step, in which layers are launched so that all else can be seen."
    )
    scope = Scope.STEP
    order = Order.GRAPHS
    default = (
        "off"  # graphs hold memory that no other step can have, and a capture that fails cannot be mended in a run
    )
    requires = ("packed_execution",)
    shown_by_steps_before = True
    conflicts = ("compiled_layers", "activation_budget")

    def applicable(self, context: Context) -> No | None:
        if not context.on_gpu:
            return No("there is no GPU", expected=True)
        if context.config.method.command != "sft":
            return No("it replays micro-batches of documents, not of pairs", expected=True)
        if context.live and (names := _that_draw(context.model)):
            return No(
                f"{names[0]} drops out, and a replay would draw otherwise than a launch",
                "set `lora_dropout: 0`" if context.has_adapter else "set the model's dropout to 0",
            )
        asked = asked_policy(context.config)
        if asked is not None and asked[0] != "none":
            return No(f"`{asked[1]}` computes activations again or moves them", "write `activation_memory: none`")
        plan = context.plan
        if plan is None or context.config.speedups.get(self.name) == "on":
            return None
        asking = f"write `speedups: {{{self.name}: on}}`"
        if plan.world > 1:
            return No("it has run on one GPU only so far", asking, expected=True)
        from dynotune.measure.busy import busy_tokens

        if (tokens := plan.tokens_a_step) > (most := busy_tokens(context.model)):
            return No(
                f"a step holds {tokens:,.0f} tokens on average, and above {most:,} a replay gains nothing",
                f"{asking} for the steps that hold less",
                expected=True,
            )
        return None

    def install(self, site: Site) -> Installation | No:
        from dynotune.measure.busy import busy_tokens
        from dynotune.model.step_graphs import Captured, Pool, StepGraphs

        pool = Pool()

        def make(run: Any, inputs: Any, parameters: Any, sums: Any) -> Captured:
            return Captured(run, inputs, parameters, sums, pool, "all")

        longest = int(predicting(np.array(site.context.longest)))
        return put_in(site, StepGraphs(site.model, make, busy_tokens(site.model), longest))

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        graphs: StepGraphs = installed.detail

        def replayed(evidence: Evidence) -> bool | None:
            if graphs.replayed["forward"]:  # a step that ran out of memory behind its layers has no backward pass
                return 0 < graphs.replayed["backward"] <= graphs.replayed["forward"]
            # Without a fault: there was no step before, or nothing in it of a size that is replayed.
            return False if graphs.failed else None

        why = f" ({'; '.join(dict.fromkeys(graphs.why_not.values()))})" if graphs.why_not else ""
        return [Holds(f"micro-batches were replayed before this step, each forward and backward{why}", replayed)]


def put_in(site: Site, graphs: "StepGraphs") -> Installation:
    """`graphs` in the place of the layers."""
    changes = site.changes

    def layers(model: Any, batch: Any) -> "Tensor":
        nonlocal changes
        if site.changes != changes:
            graphs.forget()
            changes = site.changes
        return graphs.hidden_states(model, batch)

    def uninstall() -> None:
        site.layers = None
        graphs.forget()

    def report() -> Mapping[str, Any]:
        return {
            "graphs": [shape._asdict() for shape in graphs.shapes],
            "replays_off": graphs.off,
            "replayed": dict(graphs.replayed),
            "launched": graphs.launched,
            "launched_for_hooks": graphs.watched,
            "why_launched": {f"{shape.tokens} tokens": why for shape, why in graphs.why_not.items()},
        }

    def notes() -> list[str]:
        lines = [
            f"step graphs: {graphs.replayed['forward']:,} micro-batches replayed, {graphs.launched:,} launched besides those"
            f" of the traced step; {len(graphs.off)} graphs made"
        ]
        if graphs.watched:
            lines.append(
                f"note: step graphs: {graphs.watched:,} micro-batches were launched because a hook sees the layers, a"
                " weight or all modules; a replay would not call it"
            )
        return lines + [
            f"note: step graphs: micro-batches of {tokens:,} tokens are launched: {why}"
            for tokens, why in {shape.tokens: why for shape, why in graphs.why_not.items()}.items()
        ]

    site.layers = layers
    return Installation(uninstall, report=report, notes=notes, detail=graphs)


def _that_draw(model: Any) -> list[str]:
    """Modules of the decoder that drop out in training."""
    from torch import nn

    from dynotune.model.attention.decoder import text_decoder

    kinds = (nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout)
    return [name for name, module in text_decoder(model).named_modules() if isinstance(module, kinds) and module.p > 0]
