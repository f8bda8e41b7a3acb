"""Two tokens run through a model, to see what meets what in it: nothing is drawn at random and nothing changes."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from dynotune.foreign import FOREIGN


def run_two_tokens(
    model: nn.Module, decoders: Iterable[nn.Module], compute: torch.dtype
) -> tuple[list[Any], str | None]:
    """What each of `decoders`, parts of `model`, gives in evaluation mode, without gradients, under autocast to `compute`.
    Also why that failed; what was seen until then counts for nothing."""
    training = {module: module.training for module in model.modules()}
    given: list[Any] = []
    try:
        model.eval()
        for decoder in decoders:
            device = next(decoder.parameters()).device
            ids = torch.zeros(1, 2, dtype=torch.int64, device=device)
            cast: AbstractContextManager[Any] = nullcontext()  # a skeleton has no autocast
            if device.type != "meta":
                cast = torch.autocast(device.type, compute, enabled=compute != torch.float32)
            with torch.no_grad(), cast:
                given.append(decoder(input_ids=ids, use_cache=False))
    except FOREIGN as error:  # it wants other inputs than tokens
        return [], f"{type(error).__name__}: {error}"
    finally:
        for module, was in training.items():
            module.training = was
    return given, None
