"""Which module turns hidden states into logits, and what PEFT made of it."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from dynotune.model.base import base_of
from dynotune.model.standing import stands_by_itself


def projection(model: Any) -> nn.Module | None:
    """The module that turns hidden states into logits, with what PEFT put around it."""
    module = base_of(model).get_output_embeddings()
    return module if isinstance(module, nn.Module) else None


def active(module: nn.Module) -> nn.Module:
    """The module that works at present: a head that PEFT trains in full is a copy beside the original."""
    from peft.utils import ModulesToSaveWrapper

    if not isinstance(module, ModulesToSaveWrapper):
        return module
    if module.disable_adapters or not module.active_adapters:
        inner = module.original_module
    else:
        inner = module.modules_to_save[module.active_adapters[0]]
    assert isinstance(inner, nn.Module)
    return inner


def is_linear(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether `module` is a plain linear layer, to which nobody has added anything."""
    return (
        isinstance(module, nn.Linear)
        and stands_by_itself(module, nn.Linear.forward)  # accelerate's hooks replace it on the instance
        and not (module._forward_hooks or module._forward_pre_hooks)
        and not (module._backward_hooks or module._backward_pre_hooks)
    )


@dataclass(frozen=True, slots=True)
class OwnRows:
    """A frozen weight of which some rows, those of new tokens, are trained in its place."""

    weight_VD: Tensor
    rows: list[tuple[Tensor, Tensor]]
    """Indices int64 [K] into the vocabulary, each once, and the rows [K, D]."""


def own_rows(module: nn.Module) -> OwnRows | None:
    """PEFT's trained token rows on a tied head, where they are all that changes a plain linear layer.

    Its own forward makes the merged weight, and the whole weight's gradient, for every call.
    """
    from peft.utils import TrainableTokensWrapper

    if not isinstance(module, TrainableTokensWrapper):
        return None
    adapter: Any = module.token_adapter
    base = adapter.base_layer
    if adapter.disable_adapters or adapter.merged or not adapter.active_adapters:
        return None
    if not is_linear(base) or getattr(base, "bias", None) is not None or base.weight.requires_grad:
        return None
    device = base.weight.device
    names = adapter.active_adapters
    return OwnRows(
        base.weight,
        [(_on_device(tuple(adapter.token_indices[n]), device), adapter.trainable_tokens_delta[n]) for n in names],
    )


@lru_cache(maxsize=8)
def _on_device(indices: tuple[int, ...], device: torch.device) -> Tensor:
    """Copied once: a copy in each step would make the host wait."""
    return torch.tensor(indices, device=device)


def vocabulary(module: nn.Module) -> int:
    """Logits a row, as the widest linear layer inside says; sizes chunks, so nothing depends on its being right."""
    widths = [int(part.out_features) for part in module.modules() if isinstance(part, nn.Linear)]
    return max(widths, default=1 << 18)
