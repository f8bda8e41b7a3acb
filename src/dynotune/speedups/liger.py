"""What the declarations of Liger's kernels share: which keys ask for them, and whether Liger works here."""

from typing import TYPE_CHECKING, ClassVar

from dynotune.speedups import packages
from dynotune.speedups.contract import Context, Installation, No, Setting, Speedup
from dynotune.speedups.elementwise import ElementwiseKernel
from dynotune.speedups.measured import faster, figures, in_words
from dynotune.speedups.site import Site

if TYPE_CHECKING:
    from dynotune.config.whole import WholeConfig
    from dynotune.model.elementwise import Engaged
    from dynotune.model.elementwise.usable import Kernels

PACKAGE = "liger-kernel"

KEYS = ("rope", "rms_norm", "swiglu", "geglu", "cross_entropy", "fused_linear_cross_entropy")
"""What `liger_kernel_config` may name: Liger's own names, as far as there is a speed-up."""


class LigerKernel(Speedup):
    """One of Liger's kernels. It comes behind ours in its slot, unless it was measured to be faster on this GPU."""

    requires = ("packed_execution",)
    package = PACKAGE

    keys: ClassVar[tuple[str, ...]]
    """Those of `KEYS` that mean it."""

    ours: ClassVar[str]
    """The speed-up of ours with the same slot."""

    of_the_layers: ClassVar[bool] = True
    """Whether `use_liger_kernel: true` by itself asks for it, as in TRL: for kernels of the layers, not for the loss."""

    def asked(self, config: "WholeConfig") -> tuple[Setting, str] | None:
        if not config.use_liger_kernel:
            return None
        named = {key: config.liger_kernel_config[key] for key in self.keys if key in config.liger_kernel_config}
        if named:
            wanted = [key for key, value in named.items() if value]
            return ("on", f"liger_kernel_config: {{{wanted[0]}: true}}") if wanted else None
        return ("on", "use_liger_kernel: true") if self.of_the_layers else None

    def rank(self, context: Context) -> int:
        assert self.slot is not None
        return -1 if faster(self.name, self.ours, figures(self.slot, context)) else 1

    def applicable(self, context: Context) -> No | None:
        if not context.on_gpu and not (context.live and _interpreted(context)):
            return No("Liger's kernels need a GPU", expected=True)
        return packages.missing(PACKAGE)

    def beside_ours(self, context: Context) -> str:
        """How it compares with ours on this GPU, to be said where it runs."""
        assert self.slot is not None
        return f"{self.name}: {in_words(self.name, self.ours, figures(self.slot, context))}"


class LigerElementwise(LigerKernel, ElementwiseKernel):
    """One kind of module whose elementwise operations a kernel of Liger's stands in for."""

    def install(self, site: Site) -> Installation | No:
        from dynotune.model import elementwise

        kernels = ligers_kernels(site.context)
        if isinstance(kernels, No):
            return kernels
        called = f"Liger's kernels ({self.name})"
        engaged = elementwise.install(
            site.model, site.context.compute, (self.module_kind,), kernels, called, compared=site.examined
        )
        self.look_at(engaged, site)
        found = self.standing(engaged)
        if isinstance(found, Installation):
            found.lines = (*found.lines, self.beside_ours(site.context))
        return found

    def look_at(self, engaged: "Engaged", site: Site) -> None:
        """Take out of modules what only the whole model shows to be wrong there."""


def ligers_kernels(context: Context) -> "Kernels | No":
    """Liger's kernels in the form of ours, or why they cannot be had: Liger is tried out, once a machine and version."""
    no = packages.why_not(PACKAGE, context.device) if context.on_gpu else None
    if no is not None:
        return no
    from dynotune.model.liger.usable import kernels

    found = kernels()
    return (
        No(found, "install `liger-kernel` 0.8.5 or a later one, or uninstall it") if isinstance(found, str) else found
    )


def _interpreted(context: Context) -> bool:
    """Whether Triton's interpreter runs, which is for tests."""
    from dynotune.model.elementwise.usable import Kernels, usable

    return isinstance(usable(context.device), Kernels)
