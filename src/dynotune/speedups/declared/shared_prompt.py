"""What both answers of a pair begin with, computed once."""

import math
from collections.abc import Collection, Sequence

from dynotune.measure.evidence import Evidence, Phase, Source
from dynotune.speedups.contract import Context, Installation, No, Order, Scope, Speedup
from dynotune.speedups.expectation import Expectation, Holds
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site


@register
class SharedPrompt(Speedup):
    name = "shared_prompt"
    summary = "Lays the prompt of a pair out once, before both of its answers, which do not see each other."
    touches = ("GEMM", "attention", "norms and elementwise", "LoRA")
    proof = (
        "fewer tokens went through the layers than the sides of the pairs hold, or more keys than tokens were gathered."
    )
    scope = Scope.PLAN
    order = Order.LAYOUT
    requires = ("packed_execution",)
    worth_beside = "attention"

    def applicable(self, context: Context) -> No | None:
        from dynotune.config.keys.preference import PreferenceConfig

        if not isinstance(context.config, PreferenceConfig):
            return No("there are no pairs", expected=True)
        return None

    def worth(self, context: Context, slots: Collection[str]) -> No | None:
        """On a GPU, not by the reference attention, which writes scores out where keys are more than queries: 0.73 s a step
        of eight pairs on an H200, where whole sides took 0.43. On a CPU the tokens that are saved count for more, 1.2 to 1.5
        times as fast by it."""
        if not context.on_gpu or self.worth_beside in slots:
            return None
        return No(
            "no attention kernel takes it here, and by the exact attention it costs more than it saves. Each side of a pair"
            " is laid out whole",
            remedy="write `speedups: {shared_prompt: on}`",
        )

    def install(self, site: Site) -> Installation | No:
        """Tried out on tiny families, under the exact attention: which kernel comes in depends on the answer."""
        from dynotune.model.attention import examine
        from dynotune.model.attention.backends import REFERENCE
        from dynotune.model.base import base_of
        from dynotune.model.dropout import random_parts

        context, model = site.context, site.model
        if at_random := random_parts(model):
            return No(
                f"in training values are changed at random ({', '.join(at_random[:3])}), for each sequence by itself: a"
                " prompt that stands once would get them once. Each side of a pair is laid out whole",
                remedy="leave `disable_dropout` on",
            )

        def reason(shared: bool) -> str | None:
            return examine(
                model, longest=context.longest, autocast=site.autocast, backend=REFERENCE, shared=shared
            ).reason

        why_not = site.once("shared", lambda: reason(shared=True))
        if why_not is not None:
            name, at_all = type(base_of(model)).__name__, reason(shared=False)
            if at_all is not None:
                return No(f"{name} cannot be packed: {at_all}", expected=True)
            return No(
                f"{name} cannot compute a common beginning once: {why_not}. Each side of a pair is laid out whole"
            )
        site.shared_beginnings = True

        def uninstall() -> None:
            site.shared_beginnings = False

        return Installation(uninstall)

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        return [Holds("what pairs begin with is computed once", _once)]


def _once(evidence: Evidence) -> bool | None:
    """By the tokens that embeddings were looked up for; where padding hides it, by the rows that keys are gathered from."""
    facts, operators = evidence.facts, [one for one in evidence.seen if one.source is Source.OPERATOR]
    forward = [one for one in operators if one.phase is Phase.FORWARD]
    if facts.get("sequence_tokens", 0) <= facts.get("laid_out_tokens", 0):
        return None  # these pairs have nothing in common
    tokens = dict.fromkeys(range(evidence.micro_batches), 0)
    for one in forward:
        if one.name == "aten::embedding" and one.micro_batch in tokens and len(one.shapes) > 1:
            tokens[one.micro_batch] = max(tokens[one.micro_batch], math.prod(one.shapes[1]) * one.count)
    if 0 < sum(tokens.values()) < facts["sequence_tokens"]:
        return True
    if any(0 < tokens[i] < own for i, own in enumerate(facts.get("sequences", ())) if i in tokens):
        return True  # in another one padding is more than was saved
    gathers = (one for one in forward if one.name == "aten::index_select" and len(one.shapes[0]) == 3)
    if any(one.shapes[0][0] == tokens.get(one.micro_batch, 0) < one.shapes[-1][0] for one in gathers):
        return True  # keys, by heads, are the rows of three dimensions
    compiled = any(one.name.startswith("CompiledFunction") for one in operators)
    return None if compiled or not any(tokens.values()) else False
