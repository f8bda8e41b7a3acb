"""Which modules of a model that is not ours a trace tells apart."""

from torch import nn


def places_of(model: nn.Module) -> list[str]:
    """Attention, feed-forward and norms of each layer, adapters, the head, the embedding."""
    layers = _layers(model)
    if layers is None:
        return [
            name for name, module in model.named_modules() if 1 <= name.count(".") + bool(name) <= 2 and _holds(module)
        ]
    name, found = layers
    around = [one for one, module in model.named_modules() if one and name not in one and _is_leaf(module)]
    within = [f"{name}.{i}.{child}" for i, layer in enumerate(found) for child, _ in layer.named_children()]
    adapters = [one for one, module in model.named_modules() if ".lora_" in one and _is_leaf(module)]
    return [*within, *adapters, *around]


def _layers(model: nn.Module) -> tuple[str, nn.ModuleList] | None:
    """The uppermost longest list of modules: a decoder's layers."""
    lists = [(name, one) for name, one in model.named_modules() if isinstance(one, nn.ModuleList) and len(one) > 1]
    return max(lists, key=lambda pair: (len(pair[1]), -len(pair[0])), default=None)


def _is_leaf(module: nn.Module) -> bool:
    return not list(module.children()) and _holds(module)


def _holds(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None and not isinstance(module, nn.ModuleList)
