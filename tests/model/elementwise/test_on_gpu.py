"""Promise: on a GPU a model in bfloat16 runs on the kernels, as near to float32 as without them."""

from typing import Any

import pytest
import torch

from dynotune.model.elementwise import install
from tests.model.lora.adapted import IDS, gap
from tests.tiny import tiny_model

SHAPE = {"hidden_size": 256, "intermediate_size": 640, "head_dim": 64}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def gradients(model: Any) -> dict[str, torch.Tensor]:
    model.zero_grad()
    ids = IDS.to("cuda")
    model(input_ids=ids, labels=ids).loss.backward()
    return {name: p.grad.float() for name, p in model.named_parameters()}


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gemma3_text", "phi3"])
def test_a_model_in_bfloat16(kind: str) -> None:
    exact: Any = tiny_model(kind, **SHAPE).to("cuda").train()
    model: Any = tiny_model(kind, **SHAPE).to("cuda", torch.bfloat16).train()
    exact.load_state_dict({name: p.float() for name, p in model.state_dict().items()})
    right, own = gradients(exact), gradients(model)
    engaged = install(model, torch.bfloat16)
    assert not any(engaged.others.values()), engaged.lines()
    assert len(engaged.lines()) == 1
    found = gradients(model)
    assert engaged.calls_to_own == 0
    errors = [sum(gap(g[name], right[name]) for name in right) for g in (found, own)]
    assert errors[0] < 1.5 * errors[1]
    engaged.uninstall()
    assert all(gap(g, own[name]) < 1e-2 for name, g in gradients(model).items())
