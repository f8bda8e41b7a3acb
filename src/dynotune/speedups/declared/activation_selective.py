"""Results of cheap operations made again in the backward pass."""

from collections.abc import Sequence

from dynotune.measure.evidence import Evidence, Phase
from dynotune.speedups.activation import PRODUCTS, ActivationPolicy
from dynotune.speedups.contract import Context, Installation, No
from dynotune.speedups.expectation import Absent, Expectation, Expected
from dynotune.speedups.left_out import excepted_of, left_out_of
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site

NORMS = (
    *("^dynotune_(sum_)?rms_norm_forward", "rms_norm_forward_kernel", "rsqrt"),
    *("^(Sum)?RmsNorm$", "^LigerRMSNormFunction$"),
)
"""Kernels and operators of most norms' forward pass, of which their backward pass has none. Gemma 4's are others."""


@register
class ActivationSelective(ActivationPolicy):
    name = "activation_selective"
    policy = "selective"
    summary = (
        "Makes results of norms and gated activations again in the backward pass; no product or attention runs twice."
    )
    proof = "gated activations and norms made again in the backward pass, at every layer; no matrix product made again."
    conflicts = ("compiled_layers",)  # compiled code decides itself what it makes again

    def possible(self, context: Context) -> No | None:
        from dynotune.model.activations.cheap import adapter_drops_out

        if context.has_adapter and adapter_drops_out(context.model):
            return No(
                "adapters with dropout keep what they dropped out of a result, and not the result",
                "set `lora_dropout: 0`",
            )
        return None

    def install(self, site: Site) -> Installation | No:
        from dynotune.model.activations.cheap import Cheap, remake_cheap
        from dynotune.model.activations.layers import are_checkpointed
        from dynotune.model.attention.decoder import text_decoder

        if are_checkpointed(site.model):
            return No("its layers are computed again as a whole already", expected=True)
        decoder = text_decoder(site.model)
        found = remake_cheap(site.model, decoder, site.context.compute)
        if not isinstance(found, Cheap):
            return No(found)
        return Installation(
            found.uninstall,
            places=tuple(dict.fromkeys(name.rpartition(".")[0] for name in found.kinds["gated activations"])),  # layers
            left_out=left_out_of(found.others),
            excepted=excepted_of(found.others),
            lines=tuple(f"activations: {line}" for line in found.lines()),
            forwards=[(decoder, found.around)],
            detail=found,
        )

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        def products(evidence: Evidence) -> str | None:
            twice = sum(evidence.count(PRODUCTS, phase=Phase.BACKWARD, at=at) for at in layers)
            return f"{twice:,} products of a forward pass in the backward pass" if twice else None

        def norms_unknown(evidence: Evidence) -> str | None:
            silent = set(found.kinds["norms"]) - found.remaking.told
            return (
                f"{len(silent)} of {len(found.kinds['norms'])} norms said nothing of their results" if silent else None
            )

        def norms_kept(evidence: Evidence) -> str | None:
            # Which norm's result an operation keeps depends on what is trained and on the architecture (OLMo 2 norms what a
            # block gives, not what it takes): of those that one would have kept, the trace must show them made again.
            wanted = found.remaking.wanted.intersection(found.kinds["norms"])
            of_layers = {layer: {name for name in wanted if name.startswith(f"{layer}.")} for layer in layers}
            within = {layer: norms for layer, norms in of_layers.items() if norms}
            kept = [layer for layer, norms in within.items() if not again(evidence, layer, norms)]
            return f"no norm is made again in {len(kept)} of {len(within)} layers, {kept[0]} for one" if kept else None

        def again(evidence: Evidence, layer: str, norms: set[str]) -> bool:
            if evidence.count(NORMS, phase=Phase.FORWARD, at=layer):
                return evidence.count(NORMS, phase=Phase.BACKWARD, at=layer) > 0
            # A norm of other operations, whose names the backward pass of any norm has too: by what was asked for again.
            return not found.remaking.remade.isdisjoint(norms)

        layers, found = installed.places, installed.detail
        return [
            Expected(
                "gated activation made again",
                Phase.BACKWARD,
                kernels=("^dynotune_gated_forward", "silu_kernel", "GeluCUDAKernel"),
                operators=("^aten::(silu|gelu)$", "^Gated(Halves)?$"),
                at=layers,
            ),
            Absent("norm whose result is not known", norms_unknown),
            Absent("norm kept", norms_kept),
            Absent("product computed again", products),
        ]
