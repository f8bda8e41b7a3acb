"""The forward that stands in for that of one PEFT LoRA linear: which modules it can take, and when it steps aside."""

from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dynotune.model.another_kind import OfAnotherKind
from dynotune.model.aside import Aside
from dynotune.model.autocast import computes_in, short
from dynotune.model.lora.function import LoraLinears

if TYPE_CHECKING:
    from dynotune.model.lora.copies import ComputeCopies
    from dynotune.model.lora.left_out import LeftOut
    from dynotune.model.lora.shared import LoraShared


KEPT = "_dynotune_fused_lora"
"""Attribute of a module: the `FusedLinear` that stands in for it."""


class FusedLinear:
    """What the `forward` of `module` calls while it stands in, a `peft.tuners.lora.Linear` for which `why_not` gives None.

    Everything that can change later (weights, scaling, dropout, active adapter, merged or disabled adapters) is read in each
    call. What is not plain LoRA at that moment goes to PEFT's own forward, and `aside` counts it.
    """

    def __init__(self, module: Any, name: str, compute: torch.dtype, wide: bool) -> None:
        self.module, self.name, self.compute, self.wide = module, name, compute, wide
        self.base: Any = module.base_layer
        self.dropouts: nn.ModuleDict = module.lora_dropout
        self.adapters_A: Any = module.lora_A._modules
        self.adapters_B: Any = module.lora_B._modules
        self.is_copied = module.lora_A[name].weight.dtype != compute
        self.a: Tensor | None = None
        self.b: Tensor | None = None
        self.copies: ComputeCopies | None = None
        self.shared: LoraShared | None = None
        self.place = 0
        """Among the linears of `shared`."""

        self.left_out: LeftOut | None = None
        """What the next call leaves to its neighbour, where this linear is computed by itself."""

        self.in_graph = False
        """Whether compiled code computes it by `LoraLinears`, which then is no event of its own in a trace: compiled code
        sets it in each call."""

        self.aside = Aside()
        """Calls that PEFT's own forward answered, of all linears that were put in together."""

        parts = (self.base, self.adapters_A[name], self.adapters_B[name])
        self.hooks = tuple(hooks for part in parts for hooks in hook_tables(part))
        self.forward = MethodType(_forward, module)
        """What becomes the `forward` of `module`. A method, because the compiler knows an object by its identity, which made
        a graph for each module, and a method by its function: layers that are alike share one graph."""

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """`x` [..., I]; gives [..., O]."""
        if args or kwargs:
            return self._by_peft(x, *args, **kwargs)
        assert self.copies is not None
        if self.shared is not None and (torch.compiler.is_compiling() or self.in_a_pass):
            y = self.shared.output(self, x)
            if y is not None:
                return y
        if not self.is_plain(x):
            return self._by_peft(x)
        A, B = self.weights()
        if self.is_copied and not torch.compiler.is_compiling():
            self.copies.refresh_one(self)
        if torch.compiler.is_compiling():
            self.in_graph = True
        x = x.to(self.compute)
        dropped = self.dropouts._modules[self.name](x) if self.drops() else None
        if self.left_out is not None and dropped is None:  # whose kernel gives the gradient of A
            A = A.detach()
        base = self.base._parameters
        (y,) = LoraLinears.apply(  # type: ignore[no-untyped-call]
            x, dropped, self.a, self.scale(), self.wide, self.left_out, base["weight"], base["bias"], A, B, self.b
        )
        return y  # type: ignore[no-any-return]

    def _by_peft(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        self.aside.calls += 1
        return type(self.module).forward(self.module, x, *args, **kwargs)  # type: ignore[no-any-return]

    @property
    def in_a_pass(self) -> bool:
        """Whether a forward pass of the model runs, in which linears that share an input are computed together."""
        return self.copies is not None and self.copies.in_a_pass

    def weights(self) -> tuple[Tensor, Tensor]:
        """A [R, I] and B [O, R] as they are now."""
        return self.adapters_A[self.name]._parameters["weight"], self.adapters_B[self.name]._parameters["weight"]

    def scale(self) -> float:
        """What the adapter's output is multiplied by now."""
        return float(self.module.scaling[self.name])

    def drops(self) -> bool:
        """Whether the adapter's input goes through dropout now."""
        return self.drops_in_training() and self.dropouts[self.name].training

    def drops_in_training(self) -> bool:
        """Whether the adapter has dropout: an identity stands where it never had, 0 where it was switched off."""
        dropout: Any = self.dropouts._modules[self.name]
        return type(dropout) is not nn.Identity and dropout.p > 0

    def kind(self) -> tuple[Any, ...]:
        """What linears must have in common to be computed together."""
        A, _ = self.weights()
        return self.is_copied, self.wide, A.dtype, A.device, A.shape[1]

    def is_plain(self, x: Tensor) -> bool:
        """Whether the call is plain LoRA that `LoraLinears` computes as PEFT would."""
        module, name = self.module, self.name
        base = self.base._parameters
        weight, bias = base["weight"], base["bias"]
        active = module._active_adapter
        return not (
            module._disable_adapters
            or module.merged_adapters
            or (active != name and active != [name])
            or weight.dtype is not self.compute
            or weight.requires_grad
            or (bias is not None and bias.requires_grad)
            or not computes_in(x, self.compute)
            or any(self.hooks)
        )

    def put_in(self) -> None:
        """Stand in for the module."""
        setattr(self.module, KEPT, self)
        self.module.forward = self.forward

    def take_out(self) -> None:
        """Give the module its own forward back, if it is still this one that stands in."""
        if self.module.__dict__.get("forward") is self.forward:
            del self.module.forward
            delattr(self.module, KEPT)


def _forward(module: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return getattr(module, KEPT)(x, *args, **kwargs)  # type: ignore[no-any-return]


def hook_tables(module: nn.Module) -> list[Any]:
    """The tables in which hooks of `module` are kept; they stay the same objects as hooks come and go."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [getattr(module, name) for name in names]


def why_not(module: Any, compute: torch.dtype) -> str | None:
    """Why `module`, a LoRA layer of PEFT, keeps PEFT's own forward; None if `FusedLinear` can stand in for it."""
    from peft.tuners.lora import Linear

    if type(module) is not Linear:
        kind = type(module).__name__
        why = f"is PEFT's {type(module).__module__.rsplit('.', 1)[-1]}.{kind}, not its plain lora.Linear"
        return why if "Linear" in kind else OfAnotherKind(why)  # of embeddings, convolutions and experts
    if "forward" in module.__dict__:
        return "its forward was replaced by someone else"
    if type(module.base_layer) is not nn.Linear:
        return f"its base is a {type(module.base_layer).__name__}, not a torch.nn.Linear"
    active = [name for name in module.active_adapters if name in module.lora_A]
    if len(active) != 1 or len(module.active_adapters) != 1:
        return f"it has {len(active)} active adapters, not one"
    name = active[0]
    if name in module.lora_variant:
        return OfAnotherKind(f"it is a variant of LoRA ({type(module.lora_variant[name]).__name__})")
    if module.merged:
        return "its adapter is merged"
    A: Any = module.lora_A[name]
    B: Any = module.lora_B[name]
    if {type(A), type(B)} != {nn.Linear}:
        return "its adapter is not made of torch.nn.Linear"
    if A.bias is not None or B.bias is not None:
        return "its adapter has a bias"
    return _why_not_weights(module.base_layer, A.weight, B.weight, compute) or _why_not_hooks(module.base_layer, A, B)


def _why_not_weights(base: Any, A: Tensor, B: Tensor, compute: torch.dtype) -> str | None:
    frozen = [base.weight] if base.bias is None else [base.weight, base.bias]
    if any(p.requires_grad for p in frozen):
        return "its base is trained"
    if any(type(p) is not nn.Parameter for p in (*frozen, A, B)):
        return "its weights are not plain parameters"
    if any(p.dtype != compute for p in frozen):
        return f"its base is {short(base.weight.dtype)} and products are in {short(compute)}"
    if A.dtype != B.dtype or A.dtype not in (compute, torch.float32):
        return f"its adapter is {short(A.dtype)} and products are in {short(compute)}"
    return None


def _why_not_hooks(*parts: nn.Module) -> str | None:
    return "a hook watches a part of it" if any(any(hook_tables(part)) for part in parts) else None
