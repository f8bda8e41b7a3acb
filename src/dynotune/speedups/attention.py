"""What the declarations of attention backends share: which is tried first, what it must pass, what a trace must show."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from dynotune.measure.evidence import Evidence, Phase, Source
from dynotune.speedups.contract import Context, Installation, No, Setting, Speedup
from dynotune.speedups.expectation import Absent, Expectation, Expected
from dynotune.speedups.left_out import left_out_of, modules_of
from dynotune.speedups.site import Site

if TYPE_CHECKING:
    from dynotune.config.whole import WholeConfig
    from dynotune.model.attention.call import Call

ORDER = {9: ("fa3", "fa4", "varlen", "cudnn", "flex"), 10: ("fa4", "cudnn", "varlen", "flex")}
"""Backends by speed, for each generation of GPUs (major compute capability).

9: measured on an H200 (`benchmarks/gpu_attention_backends.py`, `benchmarks/results/h200_attention_backends.json`): 16,384
tokens, 28/4 heads of 128, forward and backward, TFLOP/s of 4 x 4096, of lognormal lengths with median 200, and of 1 x 16384:
FlashAttention-3 535, 175, 595; PyTorch's FlashAttention-2 273, 126, 311; cuDNN 386, 105, 498; FlexAttention 321, 124, 378.
cuDNN is behind FlashAttention-2 although it is faster from some thousand tokens a document on, since its frontend takes 2 ms
of the host a call, twice as long as the others. FlexAttention is last since it compiles for each new shape of rows.
FlashAttention-4 513, 190, 585 beside PyTorch's 272, 118, 309 in the same call (`h200_attention_fa4.json`); it compiles for 8
to 15 s in every process, which is paid back in some hundred steps of 16,384 tokens and 28 layers. 10: not measured by us."""

KERNELS = {
    "fa3": (r"FlashAttnFwdSm90", r"FlashAttnBwdSm90"),
    "cudnn": (r"cudnn\w*sdpa\w*fprop", r"cudnn\w*sdpa\w*bprop"),
    "fa4": (r"FlashAttentionForwardSm\d", r"FlashAttentionBackwardSm\d"),
    "varlen": (r"pytorch_flash::flash_fwd", r"pytorch_flash::flash_bwd_dq_dk_dv"),
    "flex": (r"^triton_tem_", r"^triton_tem_"),
}
"""Names of kernels, forward and backward."""

OTHERS = {name: pair for name, pair in KERNELS.items() if name != "flex"} | {
    "memory-efficient": (r"fmha_cutlassF", r"fmha_cutlassB")
}
"""What is unmistakably attention. Templates of PyTorch's compiler may be matrix products as well."""


class AttentionBackend(Speedup):
    """A kernel for packed attention. Of all of them one runs."""

    backend: ClassVar[str]
    """Its name in `dynotune.model.attention.backends`."""

    implementation: ClassVar[str | None] = None
    """Value of `attn_implementation` that asks for it; None where transformers has none."""

    also: ClassVar[tuple[str, ...]] = ()
    """Installed packages on which its results depend, besides those of `package`."""

    proof = "its kernels at every attention module, forward and backward; no other attention and no mask beside them."
    slot = "attention"
    touches = ("attention",)
    requires = ("packed_execution",)

    def asked(self, config: "WholeConfig") -> tuple[Setting, str] | None:
        """On the plain path the key names transformers' own implementation."""
        asked = config.attn_implementation
        if asked is None or asked != self.implementation or config.execution[0] == "off":
            return None
        return "on", f"attn_implementation: {asked}"

    def rank(self, context: Context) -> int:
        order = ORDER[9]
        if context.live and context.on_gpu:
            import torch

            order = ORDER.get(torch.cuda.get_device_capability(context.device)[0], order)
        return order.index(self.backend) if self.backend in order else len(order)

    def applicable(self, context: Context) -> No | None:
        from dynotune.model.attention.backends import KERNELS as FOUND
        from dynotune.model.attention.backends import Asked
        from dynotune.model.attention.backends.backend import SIXTEEN_BITS

        if not context.on_gpu:
            return No(f"there is no kernel for the {context.device.type.upper()}", "train on a GPU", expected=True)
        if context.compute not in SIXTEEN_BITS:
            return No("the kernel computes in 16 bits, and this run does not", "`bf16: true`", expected=True)
        if not context.live:
            return None
        reason = FOUND[self.backend].limits(Asked(context.device, context.compute, 1, 1, 64, 64, None, None))
        if reason is not None:
            return No(reason, "take another backend", expected=True)
        return None

    def trial(self, context: Context) -> No | None:
        """Whether the package works here, tried in a process of its own."""
        if self.package is None:
            return None
        from dynotune.speedups.packages import why_not

        return why_not(self.package, context.device)

    def build(self) -> str:
        """What identifies the kernel's build where no installed package does."""
        return ""

    def install(self, site: Site) -> Installation | No:
        from dynotune.model.attention.backends import KERNELS as FOUND
        from dynotune.model.attention.observed import observed_calls
        from dynotune.model.attention.structure import why_not_by_structure

        reason = site.once("structure", lambda: why_not_by_structure(site.model, site.context.longest))
        if reason is not None:
            return No(f"the model cannot be packed: {reason}", expected=True)
        # Here and not in `applicable`: a backend that nobody tries need not be started in a process of its own.
        no = self.trial(site.context)
        if no is not None:
            return no
        kernel = FOUND[self.backend]
        missing = kernel.missing()
        if missing is not None:
            return No(missing, "install another build of its package, or take another backend")
        calls = site.once(
            "calls of attention", lambda: observed_calls(site.model, site.autocast, shared=site.shared_beginnings)
        )
        refused = {name: why for name, call in calls if (why := kernel.limits(call.asked)) is not None}
        taken = {name: call for name, call in calls if name not in refused}
        if not taken:
            reasons = "; ".join(sorted(set(refused.values()))) or "the model's attention cannot be replaced"
            if any(kernel.limits(call.asked._replace(shared=False)) is None for _, call in calls):
                remedy = "take another backend, or write `speedups: {shared_prompt: off}`"
                return No(reasons, remedy, beside="shared_prompt")
            return No(reasons, "take another backend", expected=True)
        checked = self._checked([call for name, call in calls if name in taken], site)
        if isinstance(checked, No):
            return checked
        before = site.attention
        _switch(site, self.backend)

        def uninstall() -> None:
            if site.attention == self.backend:
                _switch(site, before)

        @contextmanager
        def without() -> Iterator[None]:
            _switch(site, "reference")
            try:
                yield
            finally:
                _switch(site, self.backend)

        return Installation(
            uninstall,
            places=tuple(taken),
            left_out=left_out_of(refused),
            lines=tuple(checked),
            without=without,
        )

    def _checked(self, calls: "list[Call]", site: Site) -> list[str] | No:
        """Output and gradients, once a machine with its versions; what to say, or why not."""
        from dynotune.model.attention.backends import KERNELS as FOUND
        from dynotune.model.attention.gradient_check import Check, check, name_of
        from dynotune.speedups.remembered import Remembered

        remembered, worst = Remembered.here(site.context.device), 0.0
        for asked, scaling in dict.fromkeys((call.asked, call.scaling) for call in calls):
            key = ", ".join(filter(None, (name_of(asked, scaling), self.build())))
            kept = remembered.check(self.name, key)
            if kept is not None:
                found = Check(**kept)
            else:
                found = check(FOUND[self.backend], asked, scaling)
                remembered.keep_check(self.name, key, found.to_json(), self._packages())
                worst = max([worst, *(found.errors[name] / found.allowed[name] for name in found.errors)])
            if found.reason is not None:
                return No(
                    f"its check against float64 on this GPU failed: {found.reason} ({name_of(asked, scaling)})",
                    f"take another backend, or another version of its package and `dynotune engaged --forget {self.name}`",
                )
        return [f"attention: {self.name} agrees with float64 here ({worst:.2f} of the error allowed)"] if worst else []

    def _packages(self) -> tuple[str, ...]:
        from dynotune.speedups.packages import packages_of

        return (*packages_of(self), *self.also)

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        from dynotune.speedups.absences import apart_from, dense_masks, math_attention

        forward, backward = KERNELS[self.backend]
        expected: list[Expectation] = [
            Expected("attention kernel", Phase.FORWARD, kernels=(forward,), at=installed.places),
            Expected("attention kernel", Phase.BACKWARD, kernels=(backward,), at=installed.places),
        ]
        others = Absent("attention by other kernels", lambda evidence: _other_kernels(evidence, self.backend))
        elsewhere = modules_of(installed.left_out)  # where another one has to run
        return [*expected, *(apart_from(one, elsewhere) for one in (others, dense_masks(), math_attention()))]


def _other_kernels(evidence: Evidence, backend: str) -> str | None:
    """Names of attention kernels that are not this backend's."""
    patterns = [pattern for name, pair in OTHERS.items() if name != backend for pattern in pair]
    names = {one.name for one in evidence.matching(patterns, source=Source.KERNEL)}
    return ", ".join(sorted(name[:80] for name in names)) or None


def _switch(site: Site, backend: str) -> None:
    """For micro-batches to come: also where packed attention is in the model already."""
    from dynotune.model.attention.install import installed_in

    site.attention = backend
    installed: Any = installed_in(site.model)
    if installed is not None:
        installed.backend = backend
