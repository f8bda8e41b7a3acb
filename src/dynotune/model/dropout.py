"""What a model does at random in training: found, and switched off where it drops values."""

from contextlib import ExitStack

from torch import nn

Kept = dict[str, tuple[str, float]]
"""Name for people to attribute and value."""


def random_parts(model: nn.Module) -> list[str]:
    """What the model does at random in training, `name: probability`, each name once: modules that drop values, and numbers
    that modules keep of what they drop or shake themselves (attention's dropout, a router's jitter)."""
    found: dict[str, float] = {}
    for path, module in model.named_modules():
        for name, (_, value) in {**_dropped(path, module), **_numbers(module, "jitter")}.items():
            found[name] = max(value, found.get(name, 0.0))
    return [f"{name}: {value:g}" for name, value in found.items()]


def without_dropout(model: nn.Module, undo: ExitStack) -> list[str]:
    """Nothing of `model` is dropped from here on, in its adapter neither. Returns a sentence on what did; `undo` gives it
    back.

    TRL's `disable_dropout` leaves attention's own dropout on.
    """
    found = set()
    for path, module in model.named_modules():
        for name, (attribute, value) in _dropped(path, module).items():
            undo.callback(setattr, module, attribute, value)
            setattr(module, attribute, 0.0)
            found.add(f"{name}: {value:g}")
    return [f"dropout: off, as `disable_dropout` asks ({', '.join(sorted(found))} without it)"] if found else []


def _dropped(path: str, module: nn.Module) -> Kept:
    """What `module` drops itself."""
    if isinstance(module, nn.modules.dropout._DropoutNd):
        name = next((part for part in reversed(path.split(".")) if "drop" in part), path)
        return {name: ("p", module.p)} if module.p > 0 else {}
    return _numbers(module, "drop")


def _numbers(module: nn.Module, word: str) -> Kept:
    """Numbers above 0 that `module` keeps under a name with `word` in it."""
    kept = {name: value for name, value in vars(module).items() if word in name and not isinstance(value, bool)}
    return {name: (name, value) for name, value in kept.items() if isinstance(value, int | float) and value > 0}
