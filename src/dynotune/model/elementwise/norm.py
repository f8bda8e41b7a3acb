"""RMSNorm modules: which the kernel can stand in for, and the forward that does."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dynotune.model.another_kind import OfAnotherKind
from dynotune.model.aside import Aside
from dynotune.model.elementwise.alike import Verdicts, likeness, once_for_alike
from dynotune.model.elementwise.only_cast import rounds
from dynotune.model.elementwise.proof import random, why_different
from dynotune.model.elementwise.usable import Kernels

PRECISIONS = (torch.bfloat16, torch.float16, torch.float32)
FORMS = ((0.0, True), (1.0, False), (0.0, False))
"""Offset of the weight, and whether the normalised input is rounded before the product: Llama's, Gemma's, OLMo 2's."""

LARGEST = 65_536
"""The most D of which a kernel's program can hold a row."""

PLUS = "_dynotune_plus"
"""Keyword of a second term, by which `FusedNorm` is asked for a sum."""

ELEMENTS = 4096
"""At least, of the input that module and kernel are compared on: fewer, and the error of rounding is left to chance."""


class FusedNorm:
    """Called as `forward` of `module`. What it was not made for goes to the module's own forward, and `aside` counts it."""

    def __init__(self, module: nn.Module, kernels: Kernels, eps: float, offset: float, round_first: bool) -> None:
        self.module, self.kernels, self.apply = module, kernels, kernels.rms_norm.apply
        self.form = eps, offset, round_first
        self.proven: set[tuple[torch.dtype, torch.dtype]] = set()
        """Dtypes of input and weight for which kernel and module were compared."""

        self.low: torch.dtype | None = None
        """What results are rounded to under autocast, where whoever takes them rounds them anyway."""

        self.seen: Any = None
        """Called with each result, while somebody looks who takes them."""

        self.adds: SumFirst | None = None
        """What computes the sum before it as well, where the module that adds calls it with both terms."""

        self.parameters = module._parameters
        weight = self.parameters["weight"]
        assert weight is not None
        self.d, self.place = weight.shape[0], weight.get_device()
        self.aside = Aside()

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """`x` [..., D]; gives [..., D]. Where it `adds` and gets a term `PLUS`: the sum, whose norm the next call gives."""
        if self.adds is not None:
            if PLUS in kwargs:
                return self.adds(x, kwargs[PLUS])
            if not args and not kwargs and (waiting := self.adds.norm_of(x)) is not None:
                return waiting
        if torch.compiler.is_compiling():  # the compiler fuses the module's own operations by itself
            return type(self.module).forward(self.module, x, *args, **kwargs)  # type: ignore[no-any-return]
        weight = self.parameters["weight"]
        assert weight is not None
        if (
            args or kwargs or (x.dtype, weight.dtype) not in self.proven
            or x.shape[-1] != self.d or x.get_device() != self.place or weight.get_device() != self.place
        ):  # fmt: skip
            self.aside.calls += 1
            return type(self.module).forward(self.module, x, *args, **kwargs)  # type: ignore[no-any-return]
        low = rounds(self.low, x) if self.low is not None else None
        result: Tensor = self.apply(x, weight, *self.form) if low is None else self.apply(x, weight, *self.form, low)
        if self.seen is not None:
            self.seen(result)
        return result


class SumFirst:
    """The sum of two terms and its norm, for the module of `fused`: who calls it with both gets the sum, and the norm waits
    for the call with that very tensor."""

    def __init__(self, fused: FusedNorm, terms: tuple[torch.dtype, torch.dtype], aside: Aside) -> None:
        self.fused, self.apply, self.terms, self.aside = fused, fused.kernels.sum_rms_norm.apply, terms, aside
        self.waiting: tuple[Tensor, Tensor, int, bool] | None = None
        """The sum, its norm, the sum's version, and whether gradients were recorded."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "waiting": None}  # results of a pass are in no copy of the model

    def takes(self, a: Any, b: Any) -> bool:
        """Whether these are terms that it was compared for."""
        weight: Any = self.fused.parameters["weight"]
        return (
            isinstance(a, Tensor) and isinstance(b, Tensor)
            and (a.dtype, b.dtype) == self.terms
            and a.shape == b.shape
            and a.shape[-1] == self.fused.d
            and a.get_device() == b.get_device() == weight.get_device() == self.fused.place
            and (torch.promote_types(a.dtype, b.dtype), weight.dtype) in self.fused.proven
        )  # fmt: skip

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """`a` and `b` [..., D] that it `takes`; gives a + b."""
        fused = self.fused
        if self.waiting is not None:
            self.aside.because("a sum reached its norm as another tensor, or not at all")
        wide = a if a.dtype is torch.promote_types(a.dtype, b.dtype) else b
        low = rounds(fused.low, wide) if fused.low is not None else None
        total, normed = self.apply(a, b, fused.parameters["weight"], *fused.form, low)
        self.waiting = total, normed, total._version, torch.is_grad_enabled()
        if fused.seen is not None:
            fused.seen(normed)
        return total  # type: ignore[no-any-return]

    def norm_of(self, x: Tensor) -> Tensor | None:
        """The norm of `x` if that is the sum of the last call, unchanged; once."""
        waiting, self.waiting = self.waiting, None
        if waiting is None:
            return None
        total, normed, version, with_grad = waiting
        if total is x and x._version == version and with_grad == torch.is_grad_enabled():
            return normed
        self.aside.because("a sum reached its norm as another tensor, or not at all")
        return None


def is_candidate(module: nn.Module) -> bool:
    """A module whose only state is one vector called weight, and which has one epsilon; or one that calls itself RMSNorm."""
    if calls_itself_one(module):
        return True
    names = [name for name, _ in module.named_parameters()]
    weight = module._parameters.get("weight")
    return names == ["weight"] and weight is not None and weight.ndim == 1 and len(_floats(module)) == 1


def calls_itself_one(module: nn.Module) -> bool:
    """Whether to say so where `module` turns out to compute something else."""
    return type(module).__name__.endswith("RMSNorm")


def fused_norm(
    module: nn.Module, kernels: Kernels, compute: torch.dtype, verdicts: Verdicts | None = None
) -> FusedNorm | str:
    """The forward that stands in for that of `module`, a candidate, or why there is none. verdicts: of modules before it."""
    weight = module._parameters.get("weight")
    names = [name for name, _ in module.named_parameters()]
    if weight is None or names != ["weight"] or weight.ndim != 1:
        return OfAnotherKind("its state is not one vector called weight")
    if type(weight) is not nn.Parameter:
        return "its weight is no plain parameter"
    if weight.dtype not in PRECISIONS:
        return f"its weight is {weight.dtype}"
    if weight.shape[0] > LARGEST:
        return f"it normalises {weight.shape[0]:,} elements, more than {LARGEST:,}"
    floats = _floats(module)
    if len(floats) != 1:
        return "its epsilon cannot be told"
    low = compute, weight.dtype
    like = likeness(module)
    (offset, round_first), reason = once_for_alike(verdicts, like, lambda: _verdict(module, kernels, floats[0], low))
    if reason:
        return reason
    fused = FusedNorm(module, kernels, floats[0], offset, round_first)
    fused.proven = {low, (torch.float32, torch.float32)}
    return fused


def _verdict(
    module: nn.Module, kernels: Kernels, eps: float, low: tuple[torch.dtype, torch.dtype]
) -> tuple[tuple[float, bool], str | None]:
    """The form of `module`, and how the kernel differs from it. low: the dtypes of input and weight in working precision."""
    weight = module._parameters["weight"]
    assert weight is not None
    inputs = _inputs(weight)

    def own(x: Tensor, w: Tensor) -> Any:
        return functional_call(module, {"weight": w}, (x,))

    form = _form(own, [x.to(dtype) for x, dtype in zip(inputs, low, strict=True)], eps)

    def ours(x: Tensor, w: Tensor) -> Any:
        return kernels.rms_norm.apply(x, w, eps, *form)

    return form, why_different(own, ours, inputs, (True, weight.requires_grad), low)


def reference(x: Tensor, weight: Tensor, eps: float, offset: float, round_first: bool) -> Tensor:
    """What the kernel computes, by torch's operations."""
    wide = x.float()
    normal = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    if round_first:
        return (offset + weight) * normal.to(x.dtype)
    return (normal * (offset + weight.float())).to(x.dtype)


def _form(own: Any, x_and_weight: list[Tensor], eps: float) -> tuple[float, bool]:
    """The form that comes closest to `own` in working precision; whether it is close enough is seen later."""
    with torch.no_grad():
        x, weight = x_and_weight
        right = own(x, weight).float()
        off = [float((reference(x, weight, eps, *form).float() - right).norm()) for form in FORMS]
    return FORMS[off.index(min(off))]


def _inputs(weight: Tensor) -> list[Tensor]:
    """Rows of several magnitudes, some so small that epsilon counts, and a weight that is neither near 0 nor near 1."""
    d, device = weight.shape[0], weight.device
    x = (
        random((max(1, ELEMENTS // (4 * d)), 4, d), 1, device)
        * torch.tensor([1.0, 4.0, 0.25, 0.03125], device=device)[:, None]
    )
    return [x, 0.6 + 0.3 * random((d,), 2, device)]


def _floats(module: nn.Module) -> list[float]:
    return [value for value in vars(module).values() if type(value) is float]
