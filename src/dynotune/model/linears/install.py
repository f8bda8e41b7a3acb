"""Putting the function into a model's trained linears, and taking it out again; where it is, and why not elsewhere."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dynotune.model.another_kind import by_reason
from dynotune.model.aside import Aside
from dynotune.model.linears.function import has_wide_sums
from dynotune.model.linears.linear import TrainedLinear, TrainedShared, why_not
from dynotune.model.shared_input import Once, Passes, entrances, find_shared, groups_in_words, leaders


@dataclass(frozen=True, slots=True)
class Engaged:
    """Where the function stands in, until `uninstall`."""

    linears: dict[str, TrainedLinear]
    """By module name."""

    others: dict[str, str]
    """Linears of layers that keep their own forward, by name, with the reason."""

    passes: Passes
    not_shared: str | None
    """Why it could not be seen which linears share their input; None if it could."""

    aside: Aside

    @property
    def forwards(self) -> list[tuple[nn.Module, Any]]:
        """Modules, and what stands in the place of each one's forward."""
        return [(linear.module, linear.forward) for linear in self.linears.values()]

    def leaders(self) -> list[str]:
        """Names of those in whose call the work is done: of linears that are computed together the first."""
        return leaders(self.linears, self.passes.shared)

    def lines(self) -> list[str]:
        """What is to be said: n of N, and why not the others."""
        total = len(self.linears) + len(self.others)
        lines = [f"fused linears: {len(self.linears)} of {total} modules{groups_in_words(self.passes.shared)}"]
        if self.not_shared:
            lines.append(f"trained linears of one input are computed one by one: {self.not_shared}")
        return lines + [f"not fused, its own forward: {line}" for line in by_reason(self.others)]

    def uninstall(self) -> None:
        """Give every module its own forward back. Twice is once."""
        self.passes.unwatch()
        for linear in self.linears.values():
            linear.take_out()


def install(model: nn.Module, compute: torch.dtype, once: Once = lambda look: look()) -> Engaged:
    """Replace the forward of the trained linears in the layers of `model`, on these instances only.

    `compute` is the dtype in which their products run. Modules, names, parameters and files stay as they are. Two tokens are
    run through the decoder to see which linears read the same tensor; these are computed together. once: asks for that, or
    knows it.
    """
    linears: dict[str, TrainedLinear] = {}
    others: dict[str, str] = {}
    wide: dict[torch.device, bool] = {}
    passes, aside = Passes(), Aside()
    candidates = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    through = entrances(model, candidates)
    inside = {id(module) for one in through for part in one.children() if isinstance(part, nn.ModuleList)
              for module in part.modules()}  # fmt: skip
    for name, module in candidates.items():
        if id(module) not in inside:  # the head, which has a function of its own
            continue
        reason = why_not(module, compute)
        if reason is not None:
            others[name] = reason
            continue
        device = module.weight.device
        if device not in wide:
            wide[device] = has_wide_sums(device, compute)
        linears[name] = TrainedLinear(module, compute, wide[device], passes, aside)
    for linear in linears.values():
        linear.put_in()
    passes.watch(through)
    decoders = [module for module in through if getattr(module, "main_input_name", None) == "input_ids"]
    runs, not_shared = once(lambda: find_shared(model, decoders, linears, compute)) if linears else ([], None)
    passes.shared = [TrainedShared([linears[name] for name in names]) for names in runs]
    return Engaged(linears, others, passes, not_shared, aside)
