"""Which modules are the decoder's layers, and in which of them a module stands."""

from typing import TYPE_CHECKING

from torch import nn

from dynotune.model.attention.decoder import text_decoder

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def decoder_layers(model: "PreTrainedModel") -> dict[str, nn.Module]:
    """The layers that hidden states run through one after another, by their names in `model`. Empty where none are found.

    They are the longest list of modules that the decoder itself holds: `layers` in most architectures, `h` in some.
    """
    decoder = text_decoder(model)
    lists = [child for child in decoder.children() if isinstance(child, nn.ModuleList) and len(child)]
    if not lists:
        return {}
    wanted = {id(layer) for layer in max(lists, key=len)}
    return {name: module for name, module in model.named_modules() if id(module) in wanted}


def compiled_layer_of(model: nn.Module, name: str) -> str | None:
    """The compiled module at or above module `name` of `model`; None where it runs as it is written."""
    module, path = model, ""
    for part in name.split("."):
        module = module.get_submodule(part)
        path = f"{path}.{part}" if path else part
        if module._compiled_call_impl is not None:
            return path
    return None
