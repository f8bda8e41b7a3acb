"""Dropout, found and switched off: in modules, and in attention, which keeps its probability as a number."""

from contextlib import ExitStack

from torch import nn

_OF_ATTENTION = "attention_dropout"
"""What transformers' attention modules call the probability that they hand to the attention function."""


def without_dropout(model: nn.Module, undo: ExitStack) -> list[str]:
    """Nothing of `model` is dropped from here on, in its adapter neither. Returns a sentence on what did; `undo` gives it
    back.

    TRL's `disable_dropout` leaves attention's own dropout on.
    """
    found = set()
    for path, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            name, probability = "p", module.p
        else:
            name, probability = _OF_ATTENTION, getattr(module, _OF_ATTENTION, 0.0)
        if not isinstance(probability, int | float) or not probability:
            continue
        undo.callback(setattr, module, name, probability)
        setattr(module, name, 0.0)
        part = next((part for part in reversed(path.split(".")) if "drop" in part), path.rsplit(".", 1)[-1])
        found.add(f"{part}: {probability:g}")
    return [f"dropout: off, as `disable_dropout` asks ({', '.join(sorted(found))} without it)"] if found else []
