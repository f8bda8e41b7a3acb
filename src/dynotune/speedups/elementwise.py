"""What the declarations of our elementwise kernels share: where they go in, and what a trace must show."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from dynotune.measure.evidence import Phase
from dynotune.speedups.contract import Context, Installation, No, Speedup
from dynotune.speedups.expectation import Expectation, Expected
from dynotune.speedups.left_out import excepted_of, left_out_of
from dynotune.speedups.site import Site

if TYPE_CHECKING:
    from dynotune.model.elementwise import Engaged


class ElementwiseKernel(Speedup):
    """One kind of module whose elementwise operations a Triton kernel of ours stands in for."""

    touches = ("norms and elementwise",)
    module_kind: ClassVar[str]
    """As `dynotune.model.elementwise` calls it."""

    functions: ClassVar[str]
    """Name of its autograd function, as a regular expression."""

    kernels: ClassVar[tuple[str, str]]
    """Names of the kernels of the forward and of the backward pass."""

    proof = "its kernels at every module where it stands, forward and backward."
    requires = ("packed_execution",)
    package = "triton"

    def applicable(self, context: Context) -> No | None:
        if not context.live:
            return None if context.on_gpu else No("there is no GPU", expected=True)
        from dynotune.model.elementwise.usable import usable

        found = usable(context.device)
        if found is None:
            return No("there is no GPU", expected=True)
        return No(found) if isinstance(found, str) else None

    def may_round_in(self, context: Context) -> bool:
        """Whether its kernels can round what they write, and whoever takes it takes it once."""
        return False

    def install(self, site: Site) -> Installation | No:
        from dynotune.model import elementwise
        from dynotune.model.elementwise.only_cast import let_round

        kinds, compute = (self.module_kind,), site.context.compute
        engaged = elementwise.install(site.model, compute, kinds, compared=site.examined)
        if self.may_round_in(site.context):
            fused = engaged.fused[self.module_kind]
            once = site.once(
                ("results that are only rounded", self.name), lambda: let_round(site.model, fused, compute)
            )
            for name in once:
                fused[name].low = compute
        return self.standing(engaged)

    def standing(self, engaged: "Engaged") -> Installation | No:
        """What was put in, for the registry; No where that is nothing."""
        fused, others = engaged.fused[self.module_kind], engaged.others[self.module_kind]
        if not fused:
            engaged.uninstall()
            reasons = "; ".join(sorted(set(others.values())))
            if reasons:
                return No(reasons)
            return No(f"the model has no {self.module_kind}", expected=True, no_place=True)
        return Installation(
            engaged.uninstall,
            places=tuple(fused),
            left_out=left_out_of(others),
            excepted=excepted_of(others),
            lines=tuple(engaged.lines()),
            aside=engaged.aside,
            forwards=engaged.forwards,
        )

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        forward, backward = self.kernels
        what = f"{self.module_kind} kernel"
        at = installed.places
        return [
            Expected(what, Phase.FORWARD, kernels=(f"^{forward}",), operators=(f"^{self.functions}$",), at=at),
            Expected(
                what, Phase.BACKWARD, kernels=(f"^{backward}",), operators=(f"^{self.functions}Backward$",), at=at
            ),
        ]
