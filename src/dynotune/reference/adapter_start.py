"""What a model is without its adapter: whether the weights under it are still those of the files, and whether training
leaves them as they are."""

from operator import attrgetter
from typing import Any

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


def begins_at_zero(model: nn.Module) -> bool:
    """Whether `model` computes the same with its adapters as without them: LoRA of which one factor is zero, and nothing
    else. True without an adapter. Waits for the device.
    """
    if not hasattr(model, "peft_config"):
        return True
    from peft.tuners.lora import LoraLayer
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    parts: list[nn.Module] = [
        one for one in model.modules() if isinstance(one, BaseTunerLayer | AuxiliaryTrainingWrapper)
    ]
    return all(isinstance(one, LoraLayer) and _is_zero(one) for one in parts)


def trained_under_adapter(model: nn.Module) -> list[str]:
    """Names of parameters that are trained and belong to no adapter: switching it off does not bring back what they were.
    Biases (`bias="all"`) and what a caller has unfrozen; none without an adapter."""
    if not hasattr(model, "peft_config"):
        return []
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    own: set[int] = set()
    for module in model.modules():
        if isinstance(module, BaseTunerLayer | AuxiliaryTrainingWrapper):
            for name in module.adapter_layer_names:
                part = attrgetter(name)(module)
                own.update(map(id, part.parameters() if isinstance(part, nn.Module) else (part,)))
    if isinstance(prompts := getattr(model, "prompt_encoder", None), nn.Module):  # tokens before each row: in no layer
        own.update(map(id, prompts.parameters()))
    return [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in own]


def unlike_trl(model: nn.Module, *, computed_before: bool = False) -> str | None:
    """What is to be said where TRL, which always switches the adapter off, measures against another reference; else None."""
    if start_changes_base(model):
        return (
            "reference: the model that training starts from, its adapter included, whose start was taken out of the weights"
            " under it; TRL measures against these weights alone, so its losses differ from the first step on"
        )
    if not computed_before and (under := trained_under_adapter(model)):
        return (
            f"reference: the model that training starts from; training changes parameters under the adapter ({under[0]}"
            f"{', ...' if under[1:] else ''}), and TRL's reference moves with them unless `precompute_ref_log_probs` is true"
        )
    return None


def _is_zero(layer: Any) -> bool:
    """PEFT begins with a zero B, with a bias perhaps, and for embeddings with a zero A."""
    return not any(bool(p.any()) for factor in (layer.lora_B, layer.lora_embedding_A) for p in factor.parameters())


def _changes_base(adapter: object) -> bool:
    if getattr(adapter, "kasa_config", None) is not None:  # KaSA cuts the smallest singular values out of W
        return True
    start = getattr(adapter, "init_lora_weights", True)
    if isinstance(start, str):
        return start.lower() not in _LEAVES_BASE
    return not isinstance(start, bool | None)
