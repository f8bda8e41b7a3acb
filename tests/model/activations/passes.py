"""Forward and backward of packed execution on a tiny model, with everything that may differ given back."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynotune.model.attention import hidden_states, packed_attention
from dynotune.model.packed import PackedBatch, pack
from tests.model.lora.adapted import adapted_model
from tests.tiny import tiny_model

CPU = torch.device("cpu")


def model_of(kind: str, lora: bool, dropout: float = 0.0) -> Any:
    """In training mode."""
    if lora:
        return adapted_model(kind, lora_dropout=dropout)
    return tiny_model(kind).train()


def batch_of(lengths: tuple[int, ...] = (9, 14, 6), tokens: int = 64) -> PackedBatch:
    rng = np.random.default_rng(0)
    documents = [(ids, ids) for ids in (rng.integers(5, 340, n).astype(np.int32) for n in lengths)]
    return pack(documents, tokens, CPU)


def pass_of(model: Any, passes: int = 1, autocast: bool = False, seed: int = 7) -> dict[str, Tensor]:
    """Loss, gradients and the random state behind `passes` accumulated passes."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    total = torch.zeros(())
    for i in range(passes):
        batch = batch_of((9 + i, 14, 6))
        with packed_attention(model):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                hidden_TD = hidden_states(model, batch)
            loss = hidden_TD[batch.predictors_N].float().square().mean()
            loss.backward()
        total += loss.detach()
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    assert found
    return {"loss": total, "random state": torch.get_rng_state(), **found}


def differ(a: dict[str, Tensor], b: dict[str, Tensor]) -> list[str]:
    """Names of what is not equal to the bit."""
    assert a.keys() == b.keys()
    return [name for name in a if not torch.equal(a[name], b[name])]


def state_of(model: Any) -> list[dict[str, Any]]:
    """What hangs on the modules, to be compared before and after."""
    return [
        {k: (dict(v) if isinstance(v, dict) else v) for k, v in vars(m).items() if k not in {"_parameters", "config"}}
        for m in model.modules()
    ]
