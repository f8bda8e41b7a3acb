"""Adapters' parts of wide tensors, added by the kernel that reads these anyway."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dynotune.measure.evidence import Phase
from dynotune.speedups.contract import Context, Installation, No, Order, Speedup
from dynotune.speedups.expectation import Expectation, Expected
from dynotune.speedups.left_out import excepted_of, left_out_of
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site


@register
class LoraInActivation(Speedup):
    name = "lora_in_activation"
    summary = (
        "Adds the adapters' part of gate, of up and of the gradient of down's input inside the gated activation's kernel,"
        " where each by itself reads and writes a tensor of the intermediate width once more (adapters on all three, no"
        " dropout, rank 128 at most), and makes the gradients of these adapters that read such a tensor."
    )
    touches = ("LoRA", "norms and elementwise")
    proof = "its kernels at every feed-forward module where it stands, forward and backward."
    order = Order.LORA
    requires = ("fused_lora", "gated_activation_kernel")
    conflicts = ("compiled_layers", "activation_selective")  # the first fuses by itself, the second makes h again
    gives_way = True  # the second keeps less still
    in_skeletons = True

    def applicable(self, context: Context) -> No | None:
        return None if context.has_adapter else No("there is no adapter", expected=True)

    def install(self, site: Site) -> Installation | No:
        import torch

        from dynotune.foreign import FOREIGN, in_a_line
        from dynotune.model.aside import Aside
        from dynotune.model.elementwise import gate, gate_lora

        failures: tuple[type[Exception], ...] = ()
        if site.context.live:
            from dynotune.model.elementwise.triton_gate_lora import FAILURES, GatedLora

            function, failures = GatedLora.apply, FAILURES
        else:
            from dynotune.model.kept_by_kernels import GatedLoraKept

            function = GatedLoraKept.apply

        def between(fused: gate.FusedGate) -> gate_lora.AdaptersBetween | str:
            try:
                return gate_lora.adapters_between(fused, function, gate_lora.MOST_RANK)
            except (torch.OutOfMemoryError, torch.AcceleratorError):
                raise
            except (*FOREIGN, *failures) as error:
                return f"it cannot be compared with the kernel ({in_a_line(error)})"

        found = {name: between(fused) for name, fused in gate_lora.candidates(site.model).items()}
        standing = {name: one for name, one in found.items() if not isinstance(one, str)}
        others = {name: one for name, one in found.items() if isinstance(one, str)}
        if not standing:
            reasons = "; ".join(sorted(set(others.values())))
            remedy = "set `lora_dropout: 0`" if gate_lora.DROPS in others.values() else ""
            return (
                No(reasons, remedy)
                if reasons
                else No("the model has no gated activation", expected=True, no_place=True)
            )
        aside = Aside()
        for one in standing.values():
            one.fused.adapters, one.aside = one, aside

        def uninstall() -> None:
            for one in standing.values():
                if one.fused.adapters is one:
                    one.fused.adapters = None

        @contextmanager
        def without() -> Iterator[None]:
            there = [one for one in standing.values() if one.fused.adapters is one]
            uninstall()
            try:
                yield
            finally:
                for one in there:
                    one.fused.adapters = one

        return Installation(
            uninstall,
            without=without,
            places=tuple(standing),
            left_out=left_out_of(others),
            excepted=excepted_of(others),
            lines=(
                f"LoRA in the gated activation: {len(standing)} of {len(found)} feed-forward modules, added before rounding",
            ),
            aside=aside,
            # What goes into down [T, I] is not kept: without it that memory, free by then, takes the gradient of gate or up.
            wide_in_backward=1,
            detail=standing,
        )

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        what, at = "gated activation with LoRA", installed.places
        return [
            Expected(what, Phase.FORWARD, kernels=("^dynotune_gated_lora_forward",), operators=("^GatedLora$",), at=at),
            Expected(
                what,
                Phase.BACKWARD,
                kernels=("^dynotune_gated_lora_backward",),
                operators=("^GatedLoraBackward$",),
                at=at,
            ),
        ]
