"""Putting the fused forward into a model's LoRA modules, and taking it out again; where it is, and why not elsewhere."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dynotune.model.another_kind import by_reason
from dynotune.model.aside import Aside
from dynotune.model.lora.copies import ComputeCopies
from dynotune.model.lora.function import has_wide_products
from dynotune.model.lora.linear import FusedLinear, why_not
from dynotune.model.lora.shared import LoraShared
from dynotune.model.shared_input import Once, entrances, find_shared, groups_in_words, leaders


@dataclass(frozen=True, slots=True)
class Engaged:
    """Where the fused forward stands in, until `uninstall`."""

    linears: dict[str, FusedLinear]
    """By module name."""

    others: dict[str, str]
    """LoRA modules that keep PEFT's own forward, by name, with the reason."""

    needs_autocast: bool
    """False if every product finds its operands in the dtype that is computed in without autocast, which may then be left
    out: it costs every operation a look at its operands. True where anything else in float32 meets the activations (modules
    trained in full, rows of new tokens, LoRA that is not fused)."""

    copies: ComputeCopies
    not_shared: str | None
    """Why it could not be seen which linears share their input; None if it could."""

    aside: Aside

    def refresh(self) -> None:
        """Cast the adapters' weights now. Every forward pass of the model does so when it begins; a captured graph that
        holds only parts of the model needs it."""
        self.copies.refresh()

    @property
    def forwards(self) -> list[tuple[nn.Module, Any]]:
        """Modules, and what stands in the place of each one's forward."""
        return [(linear.module, linear.forward) for linear in self.linears.values()]

    def leaders(self) -> list[str]:
        """Names of those in whose call the work is done: of linears that are computed together the first."""
        return leaders(self.linears, self._together())

    def _together(self) -> list[LoraShared]:
        return [shared for shared in self.copies.shared if not shared.why_apart()]

    @property
    def calls_to_peft(self) -> int:
        """Calls of fused modules that PEFT's own forward answered: adapters disabled or merged, other arguments, ..."""
        return self.aside.calls

    def lines(self) -> list[str]:
        """What is to be said: n of N, and why not the others."""
        total = len(self.linears) + len(self.others)
        apart = Counter(why for shared in self.copies.shared if (why := shared.why_apart()))
        lines = [f"fused LoRA: {len(self.linears)} of {total} modules{groups_in_words(self._together())}"]
        if self.not_shared:
            lines.append(f"linears of one input are computed one by one: {self.not_shared}")
        lines += [f"linears of one input are computed one by one in {n} groups: {why}" for why, n in apart.items()]
        return lines + [f"not fused, PEFT's own forward: {line}" for line in by_reason(self.others)]

    def uninstall(self) -> None:
        """Give every module PEFT's own forward back. Twice is once."""
        self.copies.unwatch()
        for linear in self.linears.values():
            linear.take_out()


def install(
    model: nn.Module,
    compute: torch.dtype,
    share_inputs: bool = True,
    once: Once = lambda look: look(),
) -> Engaged:
    """Replace the forward of the LoRA linears of `model` (a PeftModel) that compute in `compute`, on these instances only.

    `compute` is the dtype in which their products run: autocast's where it is used, else that of the weights. Modules,
    names, parameters and files stay PEFT's. With `share_inputs`, two tokens are run through the decoder to see which linears
    read the same tensor; these are computed together. once: asks for that, or knows it.
    """
    from peft.tuners.lora import LoraLayer

    linears: dict[str, FusedLinear] = {}
    others: dict[str, str] = {}
    wide: dict[torch.device, bool] = {}
    for name, module in model.named_modules():
        if not isinstance(module, LoraLayer):
            continue
        reason = why_not(module, compute)
        if reason is not None:
            others[name] = reason
            continue
        device: Any = module.base_layer.weight.device
        if device not in wide:
            wide[device] = has_wide_products(device, compute)
        linears[name] = FusedLinear(module, module.active_adapters[0], compute, wide[device])
    copies, aside = ComputeCopies(linears.values(), compute), Aside()
    for linear in linears.values():
        linear.copies, linear.aside = copies, aside
        linear.put_in()
    # A fused linear outside of any list of layers, such as the LM head, casts its own weights.
    passes = entrances(model, linears)
    copies.watch(passes)
    not_shared = None
    if share_inputs:
        decoders = [module for module in passes if getattr(module, "main_input_name", None) == "input_ids"]
        runs, not_shared = once(lambda: find_shared(model, decoders, linears, compute))
        copies.share([LoraShared([linears[name] for name in names]) for names in runs])
    return Engaged(linears, others, _needs_autocast(model, linears, compute), copies, not_shared, aside)


def _needs_autocast(model: nn.Module, linears: dict[str, FusedLinear], compute: torch.dtype) -> bool:
    handled = {id(weight) for linear in linears.values() for weight in linear.weights()}
    return any(p.is_floating_point() and p.dtype != compute and id(p) not in handled for p in model.parameters())
