"""Attention modules that call a rotary function of their own file: which the kernel can stand in for, and how.

The function is looked up in the globals of the module's file, which all models of that kind share. So the one instance gets
a copy of its forward that sees other globals: nothing that another model uses is changed.
"""

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from dynotune.model.another_kind import OfAnotherKind
from dynotune.model.aside import Aside
from dynotune.model.elementwise.alike import Verdicts, once_for_alike
from dynotune.model.elementwise.only_cast import rounds
from dynotune.model.elementwise.proof import random, why_different
from dynotune.model.elementwise.usable import Kernels

TOKENS = 5
Pair = tuple[Tensor, Tensor]
Shapes = tuple[tuple[int, ...], ...]


class FusedRotary:
    """Called as the rotary function of one attention module. Other calls than the plain one go to the original."""

    def __init__(self, original: Callable[..., Pair], kernels: Kernels) -> None:
        self.original, self.apply = original, kernels.rotary.apply
        self.on_cpu = kernels.on_cpu
        self.proven: set[tuple[torch.dtype, torch.dtype]] = set()
        """Dtypes of query and tables for which kernel and function were compared."""

        self.low: torch.dtype | None = None
        """What results are rounded to under autocast, where whoever takes them rounds them anyway."""

        self.seen: Any = None
        """Called with each pair of results, while somebody looks who takes them."""

        self.aside = Aside()

    def __call__(self, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> Pair:
        """`query` [B, H, T, D], `key` [B, K, T, D], `cos` and `sin` [B, T, D] or [1, T, D]."""
        if args or kwargs or not self.is_plain(query, key, cos, sin):
            self.aside.calls += 1
            return self.original(query, key, cos, sin, *args, **kwargs)
        low = rounds(self.low, cos) if self.low is not None else None
        rotated: Pair = self.apply(query, key, cos, sin) if low is None else self.apply(query, key, cos, sin, low)
        if self.seen is not None:
            self.seen(*rotated)
        return rotated

    def is_plain(self, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> bool:
        """Whether the kernel computes this call: the whole head is rotated, heads lie within tokens, tables are constant."""
        b, _, t, d = query.shape
        return (
            (cos.shape == (b, t, d) or cos.shape == (1, t, d))
            and sin.shape == cos.shape
            and key.shape[0] == b
            and key.shape[2:] == (t, d)
            and d % 2 == 0
            and (query.dtype, cos.dtype) in self.proven
            and key.dtype is query.dtype
            and sin.dtype is cos.dtype
            and (query.is_cuda or self.on_cpu)
            and not (cos.requires_grad or sin.requires_grad)
            and fits(query)
            and fits(key)
        )


class Forward:
    """Called as `forward` of an attention module: its own one, with other globals."""

    def __init__(self, module: nn.Module, changed: Callable[..., Any]) -> None:
        self.module, self.changed = module, changed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # it looks globals up in the module's file, and fuses what it finds there
            return type(self.module).forward(self.module, *args, **kwargs)
        return self.changed(self.module, *args, **kwargs)


def fits(x_BHTD: Tensor) -> bool:
    """Whether the heads of a token lie beside each other in memory, and tokens at equal distances."""
    b, h, t, d = x_BHTD.shape
    batch, head, token, last = x_BHTD.stride()
    return last == 1 and (h == 1 or head == d) and (b == 1 or batch == t * token)


def is_candidate(module: nn.Module) -> bool:
    """A module whose forward calls a rotary function that its file defines or imports."""
    return bool(functions_called(module))


def table_widths(model: nn.Module) -> set[int]:
    """How many dimensions of a head are rotated in `model`, by the frequencies that it holds; empty if it holds none."""
    return {2 * buffer.numel() for name, buffer in model.named_buffers() if name.endswith("inv_freq")}


def fused_rotary(
    module: nn.Module, kernels: Kernels, compute: torch.dtype, widths: set[int], verdicts: Verdicts | None = None
) -> tuple[FusedRotary, Forward] | str:
    """What stands in for the rotary function of `module`, a candidate, and the forward that calls it, or why there is none.

    `widths`: how many dimensions of a head the model's tables rotate. verdicts: of functions before it.
    """
    forward: Any = type(module).forward
    names = functions_called(module)
    if len(names) != 1:
        return OfAnotherKind(f"it calls {len(names)} rotary functions")
    if not isinstance(forward, FunctionType) or hasattr(forward, "__wrapped__"):
        return "its forward is wrapped"
    name = names[0]
    original = forward.__globals__[name]
    fused = FusedRotary(original, kernels)
    parameter = next(module.parameters(), None)
    if parameter is None:
        return "it has no parameters"
    shapes = _shapes(module)
    d = shapes[0][-1]
    if widths and d not in widths:
        return OfAnotherKind(f"it rotates {' or '.join(map(str, sorted(widths)))} of {d} dimensions")

    # Under autocast a model with float32 weights brings float32 tables to queries of lower precision.
    of_tables = tuple(dict.fromkeys((compute, torch.float32)))
    device = parameter.device
    reasons = once_for_alike(
        verdicts,
        (id(original), shapes, device),  # what the module is else does not matter to the function
        lambda: {tables: _why_different(original, kernels, shapes, device, compute, tables) for tables in of_tables},
    )
    if reason := reasons[compute]:
        return reason
    for tables in of_tables:
        if reasons[tables] is None:
            fused.proven |= {(compute, tables), (torch.float32, torch.float32)}
    seen = {**forward.__globals__, name: fused}
    changed = FunctionType(forward.__code__, seen, forward.__name__, forward.__defaults__, forward.__closure__)
    changed.__kwdefaults__ = forward.__kwdefaults__
    return fused, Forward(module, changed)


def functions_called(module: nn.Module) -> list[str]:
    """Global functions with rotary in their name that the forward of `module` refers to."""
    forward: Any = type(module).forward
    while hasattr(forward, "__wrapped__"):
        forward = forward.__wrapped__
    if not isinstance(forward, FunctionType) or forward.__globals__ is not vars(sys.modules[forward.__module__]):
        return []
    return [n for n in forward.__code__.co_names if "rotary" in n and callable(forward.__globals__.get(n))]


def _why_different(
    original: Callable[..., Pair],
    kernels: Kernels,
    shapes: Shapes,
    device: torch.device,
    compute: torch.dtype,
    tables: torch.dtype,
) -> str | None:
    """How the kernel differs from a rotary function, for queries in `compute` and tables in `tables`."""

    def own(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> Pair:
        return original(query.transpose(1, 2), key.transpose(1, 2), cos, sin)

    def ours(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> Pair:
        return kernels.rotary.apply(query.transpose(1, 2), key.transpose(1, 2), cos, sin)  # type: ignore[no-any-return]

    inputs = _inputs(shapes, device, kernels.half_tables)
    return why_different(own, ours, inputs, (True, True, False, False), (compute, compute, tables, tables))


def _shapes(module: nn.Module) -> Shapes:
    """Of query, key and tables, by the model's own head counts where it says them: what is compiled to be compared is then
    what runs."""
    config: Any = getattr(module, "config", None)
    heads = getattr(config, "num_attention_heads", None) or 3
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    d = getattr(module, "head_dim", None) or 64
    return (1, TOKENS, heads, d), (1, TOKENS, key_heads, d), (1, TOKENS, d), (1, TOKENS, d)


def _inputs(shapes: Shapes, device: torch.device, half_tables: bool) -> list[Tensor]:
    query, key, *tables = (random(shape, i, device) for i, shape in enumerate(shapes))
    if half_tables:
        tables = [table[..., : table.shape[-1] // 2].repeat(1, 1, 2) for table in tables]
    return [query, key, *tables]
