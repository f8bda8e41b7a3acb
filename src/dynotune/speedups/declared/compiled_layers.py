"""Decoder layers compiled by PyTorch, one graph for each token count."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dynotune.measure.evidence import Evidence, Phase
from dynotune.measure.signs.record import Sign
from dynotune.speedups.activation import asked_policy
from dynotune.speedups.contract import Ahead, Context, Installation, No, Order, Setting, Speedup
from dynotune.speedups.expectation import Expectation, Expected, Holds
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site

if TYPE_CHECKING:
    from dynotune.config.whole import WholeConfig
    from dynotune.model.compiled import Regions

KERNELS = (r"^triton_(poi|red|per|tem|for|mm)_",)
"""As Inductor names what it writes."""

COMPILER = "inductor"
MODES = (None, "default", "max-autotune-no-cudagraphs")
GRAPHS_OF_CUDA = ("reduce-overhead", "max-autotune")
"""Modes that capture CUDA graphs."""

AGAIN = "Whatever changes that value while the run goes on, a callback for one, has layers compiled anew: let it stand."


@register
class CompiledLayers(Speedup):
    name = "compiled_layers"
    summary = "Compiles the decoder layers, one graph for each token count: elementwise operations become few kernels."
    touches = ("norms and elementwise", "copies", "idle: host")
    proof = "compiled code at every layer, forward and backward; nothing compiled again, nothing run as it is written."
    order = Order.COMPILE
    default = (
        "off"  # slower than our own kernels under LoRA; 6 % faster in full training, by layers alone (`expected_gain`)
    )
    requires = ("packed_execution",)
    # While it compiles, modules run as they are written: what these kernels compute is fused with what stands around it.
    conflicts = (
        *("rms_norm_kernel", "gated_activation_kernel", "rotary_kernel", "fused_linears"),
        *("liger_rms_norm", "liger_swiglu", "liger_rope"),
    )

    def asked(self, config: "WholeConfig") -> tuple[Setting, str] | None:
        """As in transformers, a backend or a mode asks for it, too."""
        for key in ("torch_compile", "torch_compile_backend", "torch_compile_mode"):
            if value := getattr(config, key):
                return "on", f"{key}: {str(value).lower() if value is True else value}"
        return None

    def applicable(self, context: Context) -> No | None:
        from dynotune.model.compiled import decoder_layers

        config = context.config
        if config.torch_compile_backend not in (None, COMPILER):
            return No(
                f"`torch_compile_backend: {config.torch_compile_backend}` is not supported",
                f"take it out, or write `torch_compile_backend: {COMPILER}`",
            )
        if config.torch_compile_mode in GRAPHS_OF_CUDA:
            return No(
                f"`torch_compile_mode: {config.torch_compile_mode}` captures CUDA graphs of single layers, which hold on to"
                " the memory of every token count",
                "write `torch_compile_mode: max-autotune-no-cudagraphs`, or take it out",
            )
        if config.torch_compile_mode not in MODES:
            return No(
                f"there is no `torch_compile_mode: {config.torch_compile_mode}`",
                f"write one of {', '.join(mode for mode in MODES if mode)}, or take it out",
            )
        asked = asked_policy(config)
        if context.has_adapter and config.lora_dropout and asked is not None and asked[0] in ("full", "offload"):
            return No(
                "dropout in LoRA would be drawn anew where checkpointed layers are recomputed (PEFT issue 3020)",
                "set `lora_dropout: 0` or `gradient_checkpointing: false`",
            )
        if not decoder_layers(context.model):
            return No(f"{type(context.model).__name__} has no list of layers")
        return None if self._is_demanded(config) else _why_not_worth(context)

    def install(self, site: Site) -> Installation | No:
        from dynotune.model.compiled import compile_layers, decoder_layers
        from dynotune.model.compiled.cache import CompileCache

        layers = decoder_layers(site.model)
        taken = sorted(name for name, layer in layers.items() if layer._compiled_call_impl is not None)
        if taken:
            return No(f"{taken[0]} is compiled already", "leave compiling to Dynotune")
        cache = CompileCache()
        regions = compile_layers(layers, COMPILER, site.context.config.torch_compile_mode, cache.folder)

        def uninstall() -> None:
            regions.uninstall()
            cache.close()

        # Behind the proof nobody judges any more: the run is told at once, and of all of them when it is over.
        regions.on_again = lambda made: site.tell(Sign("recompiling", made.made_again(), AGAIN))

        said: list[str] = []

        def before_the_first_step(ahead: Ahead) -> list[str]:
            said[:] = _compile_ahead(site, regions, ahead)
            return said

        def behind_the_last() -> list[str]:
            return [line for line in regions.report().lines(regions.tokens_a_step) if line not in said]

        lines = [f"compiled layers: {len(layers)} of {len(layers)}"]
        if cache.note:
            lines.append(cache.note)
        return Installation(
            uninstall,
            places=tuple(layers),
            lines=tuple(lines),
            warm_up=before_the_first_step,
            report=lambda: regions.report().to_json(regions.tokens_a_step),
            notes=behind_the_last,
            aside=regions.aside,
            without=regions.as_written,
            detail=regions,
        )

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        regions: Any = installed.detail

        def not_again(evidence: Evidence) -> bool:
            return not regions.recompilations

        def none_eager(evidence: Evidence) -> bool:
            return not regions.runs_eager

        return [
            Expected(
                "compiled forward",
                Phase.FORWARD,
                kernels=KERNELS,
                operators=(r"^CompiledFunction$",),
                at=installed.places,
            ),
            Expected(
                "compiled backward",
                Phase.BACKWARD,
                kernels=KERNELS,
                operators=(r"^CompiledFunctionBackward$",),
                at=installed.places,
            ),
            Holds("no layer was compiled again for a token count that it knew", not_again),
            Holds("no layer runs as it is written because the compiler could not", none_eager),
        ]

    def _is_demanded(self, config: "WholeConfig") -> bool:
        asked = self.asked(config)
        return config.speedups.get(self.name, asked[0] if asked else self.default) == "on"


def _compile_ahead(site: Site, regions: "Regions", ahead: Ahead) -> list[str]:
    """Every token count of the ladder, so that no step waits; the one that takes most of the time is run
    as it would be otherwise, too."""
    from dynotune.model.compiled.warm_up import dummy_run, warm_up

    compare = max(ahead.micro_batches, key=lambda tokens: tokens * ahead.micro_batches[tokens])
    counts = ", ".join(f"{tokens:,}" for tokens in ahead.micro_batches)
    ahead.say(f"compiled layers: compiling for micro-batches of {counts} tokens before the first step")
    run = dummy_run(site.model, ahead.longest, site.autocast, ahead.engaged, shared=site.shared_beginnings)
    left_out = warm_up(regions, run, list(ahead.micro_batches), compare, ahead.instead)
    regions.tokens_a_step = ahead.tokens_a_step
    lines = regions.report().lines(ahead.tokens_a_step)
    if left_out:
        counts = ", ".join(f"{tokens:,}" for tokens in left_out)
        lines.append(
            f"note: compiled layers: memory ran out when they were compiled for {counts} tokens; a step does it"
        )
    return lines


def _why_not_worth(context: Context) -> No | None:
    from dynotune.model.attention.decoder import text_decoder
    from dynotune.model.compiled import decoder_layers
    from dynotune.model.compiled.expected_gain import FIGURES, Work, why_not_worth
    from dynotune.plan.ladder import COMPILED_RUNGS

    plan = context.plan
    if plan is None or not context.on_gpu:
        reason = "there is no GPU" if not context.on_gpu else "nothing is planned that it could pay for"
        return No(reason, "write `speedups: {compiled_layers: on}`", expected=True)
    import torch

    decoder: Any = text_decoder(context.model)
    work = Work(
        steps=plan.total_steps,
        tokens_a_step=plan.tokens_a_step,
        graphs=COMPILED_RUNGS
        * (2 if context.has_adapter else 1),  # the first layer's input needs no gradient under an adapter
        layers=len(decoder_layers(context.model)),
        hidden=decoder.config.hidden_size,
    )
    gpu = torch.cuda.get_device_name(context.device)
    not_worth = why_not_worth(FIGURES.get((gpu, "lora" if context.has_adapter else "full")), work)
    return No(not_worth, "write `speedups: {compiled_layers: on}`") if not_worth else None
