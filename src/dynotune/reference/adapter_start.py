"""Whether an adapter's start was taken out of the weights under it, which are then no longer those of the files."""

from torch import nn

_LEAVES_BASE = frozenset({"gaussian", "eva", "orthogonal", "mica"})
"""PEFT's starts, beside true and false, that write into the adapter alone. `pissa`, `olora`, `corda`, `lora_ga` and `loftq`
subtract the start B·A from W, or quantise W, so that W - B·A + B·A is what the run begins at."""


def start_changes_base(model: nn.Module) -> bool:
    """Whether `model` with its adapters switched off computes something else than before it got them.

    Its reference is then the model with its adapter at its start, which only a model before its first step has. A start that
    is not known here counts as one that does. False without an adapter and for adapters that have no such choice.
    """
    adapters = getattr(model, "peft_config", {}).values()
    return any(map(_changes_base, adapters))


def _changes_base(adapter: object) -> bool:
    if getattr(adapter, "kasa_config", None) is not None:  # KaSA cuts the smallest singular values out of W
        return True
    start = getattr(adapter, "init_lora_weights", True)
    if isinstance(start, str):
        return start.lower() not in _LEAVES_BASE
    return not isinstance(start, bool | None)
