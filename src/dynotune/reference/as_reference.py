"""The policy's model as its own reference, for a while: adapter off (or at its start), no dropout, no gradients."""

from collections.abc import Callable, Iterator
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
    as it was: which adapters work, every module's own mode, and every parameter's `requires_grad`, which PEFT sets anew.

    autocast: as the policy computes. keep_adapter: an adapter whose training goes on is a part of its own reference, which
    is then computed before the first step. So is, whatever is asked for, one whose start was taken out of the weights under
    it (`start_changes_base`): without it they are not what the run begins at.
    """
    with ExitStack() as restore:
        for parameter in model.parameters():
            restore.callback(parameter.requires_grad_, parameter.requires_grad)
        for module in model.modules():
            restore.callback(setattr, module, "training", module.training)
        if hasattr(model, "peft_config") and not (keep_adapter or start_changes_base(model)):
            peft: Any = model
            restore.enter_context(peft.disable_adapter())
        model.eval()
        restore.enter_context(torch.no_grad())
        restore.enter_context(autocast())
        yield
