"""Whether a model's rotary tables repeat themselves: Liger's kernel reads one half and takes the other for the same."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import Tensor

from dynotune.model.elementwise.rotary import FusedRotary

TOKENS = 4


def why_not_halves(
    model: Any, rotaries: Mapping[str, FusedRotary], autocast: Callable[[], AbstractContextManager[Any]]
) -> dict[str, str]:
    """Which of `rotaries`, by name, get tables whose halves differ, or none, and that in words. Waits for the device.

    One forward pass of a few tokens; what the tables are made of does not depend on the tokens.
    """
    alike: dict[str, bool] = {}
    with ExitStack() as back:
        for name, fused in rotaries.items():
            back.callback(setattr, fused, "apply", fused.apply)
            fused.apply = _Look(name, fused.apply, alike)
        for module in model.modules():
            back.callback(setattr, module, "training", module.training)
        model.eval()
        with torch.no_grad(), autocast():
            ids = torch.arange(1, 1 + TOKENS, device=next(model.parameters()).device)
            model(input_ids=ids[None], use_cache=False)
    reasons = {name: "its tables cannot be seen in a forward pass" for name in rotaries if name not in alike}
    return reasons | {name: "the two halves of its tables differ" for name, same in alike.items() if not same}


class _Look:
    """In the place of the kernel: notes what the tables are like, and calls it."""

    def __init__(self, name: str, apply: Any, alike: dict[str, bool]) -> None:
        self.name, self.apply, self.alike = name, apply, alike

    def __call__(self, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> Any:
        halves = [table.chunk(2, dim=-1) for table in (cos, sin)]
        same = all(torch.equal(first, second) for first, second in halves)
        self.alike[self.name] = self.alike.get(self.name, True) and same
        return self.apply(query, key, cos, sin)
