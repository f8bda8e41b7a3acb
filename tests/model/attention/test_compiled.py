"""Promise: compiled layers see few shapes: another packing of the same token count is not compiled again."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dynotune.model.attention import hidden_states, packed_attention
from dynotune.model.attention.backends import Asked, backend, varlen
from dynotune.model.packed import pack
from tests.model.attention.architectures import architecture

PACKINGS = [(9, 4, 12), (5, 5, 5, 5), (20,), (1, 30, 2), (2,) * 7]
CPU = torch.device("cpu")


@torch.library.custom_op("dynotune_tests::varlen", mutates_args={})
def opaque(q: Tensor, k: Tensor, v: Tensor, boundaries: Tensor, longest: int) -> Tensor:
    """In the place of the kernel, which has no CPU form: as opaque to the compiler."""
    return q.clone()


@opaque.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, boundaries: Tensor, longest: int) -> Tensor:
    return torch.empty_like(q)


opaque.register_autograd(lambda ctx, gradient: (gradient, None, None, None, None))


def limits(asked: Asked) -> str | None:
    """As on a GPU: limits by shapes, and the device is asked for its capability."""
    if asked.head_dim != asked.value_dim or backend.capability_of(0) < (8, 0):
        return "old"
    return backend.why_no_flash(asked._replace(device=torch.device("cuda", 0)), capability=(8, 0), softcap=False)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_one_graph_for_every_packing(checkpointing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the function asks of a GPU, it asks here.
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(varlen, "limits", limits)
    monkeypatch.setattr(varlen, "attend", lambda q, k, v, ends, longest, *_: opaque(q, k, v, ends, longest))
    torch._dynamo.reset()
    model: Any = architecture("qwen2").train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    graphs = 0

    def counting(graph: Any, inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return graph.forward

    for layer in model.model.layers:
        layer.compile(backend=counting, fullgraph=True)
    with packed_attention(model):
        for lengths in PACKINGS:
            batch = pack([(ids := np.full(n, 7, np.int32), ids) for n in lengths], 40, CPU)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                hidden_states(model, batch).sum().backward()
    assert graphs == 1
    torch._dynamo.reset()
