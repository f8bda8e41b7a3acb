"""The policy's model as its own reference, for a while: adapter off (or at its start), no dropout, no gradients."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from dynotune.reference.adapter_start import start_changes_base


@contextmanager
def as_reference(
    model: nn.Module,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    *,
    keep_adapter: bool = False,
) -> Iterator[None]:
    """`model`, PEFT-wrapped or not, computes what its reference computes. Afterwards, also after an error, everything is
    as it was: which adapters work, every module's own mode, and every parameter's `requires_grad`.

    autocast: as the policy computes. keep_adapter: an adapter whose training goes on is a part of its own reference, which
    is then computed before the first step. So is, whatever is asked for, one whose start was taken out of the weights under
    it (`start_changes_base`): without it they are not what the run begins at.
    """
    modules = list(model.modules())
    training = [module for module in modules if module.training]
    with ExitStack() as restore:
        if hasattr(model, "peft_config") and not (keep_adapter or start_changes_base(model)):
            restore.enter_context(_without_adapter(model, modules))
        restore.callback(_set, training, "training", True)
        _set(training, "training", False)
        restore.enter_context(torch.no_grad())
        restore.enter_context(autocast())
        yield


@contextmanager
def _without_adapter(model: Any, modules: Sequence[nn.Module]) -> Iterator[None]:
    """PEFT's `disable_adapter`. It looks at all of a large model for 100 ms, and at every parameter, where LoRA's layers
    need a word each; without gradients nobody asks which parameters are trained."""
    if {str(config.peft_type.value) for config in model.peft_config.values()} != {"LORA"}:
        trained = [(p, p.requires_grad) for p in model.parameters()]
        try:
            with model.disable_adapter():
                yield
        finally:
            for parameter, requires_grad in trained:
                parameter.requires_grad_(requires_grad)
        return
    working = [module for module in modules if vars(module).get("_disable_adapters") is False]
    try:
        _set(working, "_disable_adapters", True)
        yield
    finally:
        _set(working, "_disable_adapters", False)


def _set(modules: Sequence[nn.Module], name: str, value: bool) -> None:
    """A plain attribute, past `nn.Module.__setattr__`, which looks for parameters first: a step may do it each time."""
    for module in modules:
        vars(module)[name] = value
