"""Which results of kernels are only ever rounded to the precision of products: these are written in it at once.

Under autocast a model of float32 weights has norms and rotated queries in float32, and each product that takes them rounds
them for itself. Where nobody else sees a result, a kernel that rounds it as it writes it gives the same values, with a third
of the bytes. That nobody does is seen in a forward pass of two tokens, operation by operation, never guessed from names.

The gradient comes in that precision as well: where one operation takes the result it is the same; linears that are computed
together sum theirs within the products, rounded once each.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dynotune.model.attention.backends.backend import SIXTEEN_BITS
from dynotune.model.attention.decoder import text_decoder
from dynotune.model.autocast import computes_in
from dynotune.model.two_tokens import run_two_tokens

_MOVES = ("clone", "_unsafe_view", "_reshape_alias", "contiguous")
"""Operations that copy values as they are, besides views."""


class Rounds(Protocol):
    """What stands in for a module, and can round its results."""

    low: torch.dtype | None
    seen: Any
    """Called with each result while somebody looks."""


def let_round(model: Any, standing: Mapping[str, Rounds], compute: torch.dtype) -> list[str]:
    """Set `low` of those in `standing` (by name, in `model`) whose results are only rounded to `compute`; their names.

    None of a model that drops out, whose training has operations that two tokens in evaluation do not show.
    """
    decoder = text_decoder(model)
    if compute not in SIXTEEN_BITS or not standing or _draws(decoder):
        return []
    looking = _Looking(compute)
    for name, one in standing.items():
        one.low, one.seen = None, partial(looking.follow, name)
    try:
        with looking:
            given, failed = run_two_tokens(model, [decoder], compute)
    finally:
        for one in standing.values():
            one.seen = None
    if failed:
        return []
    for x in tree_leaves([vars(one) if hasattr(one, "__dict__") else one for one in given]):
        if isinstance(x, Tensor):
            looking.somebody_sees(x)
    found = [name for name in standing if name in looking.rounded - looking.otherwise]
    for name in found:
        standing[name].low = compute
    return found


def rounds(low: torch.dtype | None, x: Tensor) -> torch.dtype | None:
    """The dtype that a result for `x` is rounded to now: `low` under the autocast that rounds it anyway."""
    return low if low is not None and x.dtype is torch.float32 and computes_in(x, low) else None


class _Looking(TorchDispatchMode):
    """Follows results by where their values lie."""

    def __init__(self, compute: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.compute = compute
        self.rounded: set[str] = set()
        self.otherwise: set[str] = set()
        self._of: dict[int, str] = {}
        self._kept: list[Tensor] = []
        """So that no address is given twice."""

    def follow(self, name: str, *results: Tensor) -> None:
        for x in results:
            if x.dtype is not torch.float32:
                self.otherwise.add(name)
            self._of[_place(x)] = name
            self._kept.append(x)

    def somebody_sees(self, x: Tensor) -> None:
        if (name := self._of.get(_place(x))) is not None:
            self.otherwise.add(name)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        places = [_place(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        names = {self._of[at] for at in places if at in self._of}
        if not names:
            return result
        if func._schema.name == "aten::_to_copy" and result.dtype is self.compute:
            self.rounded |= names
        elif not _only_looks(func, result):
            if _copies(func):
                for name in names:
                    self.follow(name, result)
            else:
                self.otherwise |= names
        return result


def _only_looks(func: Any, result: Any) -> bool:
    """A view, or a question without values such as a size."""
    returns = func._schema.returns
    if not returns or not isinstance(result, Tensor):
        return not any(isinstance(x, Tensor) for x in tree_leaves(result)) and not func._schema.is_mutable
    return not func._schema.is_mutable and all(
        one.alias_info is not None and not one.alias_info.is_write for one in returns
    )


def _copies(func: Any) -> bool:
    return func._schema.name.removeprefix("aten::") in _MOVES


def _place(x: Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def _draws(decoder: nn.Module) -> bool:
    """Whether training drops out or adds noise somewhere, by its modules and by what its configuration says."""
    config: Any = getattr(decoder, "config", None)
    said = config.to_dict() if hasattr(config, "to_dict") else {}
    asked = any(
        isinstance(value, float) and value > 0 and any(word in key for word in ("dropout", "jitter", "noise"))
        for key, value in said.items()
    )
    return asked or any("Dropout" in type(module).__name__ and getattr(module, "p", 1) for module in decoder.modules())
