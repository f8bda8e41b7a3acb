"""Which attention calls a model makes, by one tiny forward pass: its configuration need not be understood."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from dynotune.model.attention.backends import REFERENCE
from dynotune.model.attention.call import Call
from dynotune.model.attention.install import installed_in
from dynotune.model.attention.probe import Probe, untouched

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def observed_calls(
    model: "PreTrainedModel", autocast: Callable[[], AbstractContextManager[Any]], shared: bool = False
) -> list[tuple[str, Call]]:
    """Each call of packed execution, with the name of the module that made it. The model is left as it was.

    shared: with documents that begin alike, laid out with their beginning once: calls are `asked` for that, then.

    Raises whatever a model raises that cannot be packed.
    """
    device = next(model.parameters()).device
    installed = installed_in(model)
    probe = Probe(model, autocast, device, REFERENCE, shared)
    calls: list[Call] = []
    before = None if installed is None else installed.backend
    try:
        if installed is not None:
            installed.backend = REFERENCE
        with untouched(model, device):
            probe.packed(probe.documents(seed=0), calls)
    finally:
        if installed is not None and before is not None:
            installed.backend = before
    names = {id(module): name for name, module in model.named_modules()}
    return [(names[id(call.module)], call) for call in calls]
