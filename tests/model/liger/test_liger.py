"""Promise: Liger's kernels stand in where they compute the same, and overwrite nothing that anybody needs."""

import sys

import pytest
import torch

from dynotune.model.liger import usable
from tests.model.liger.in_interpreter import run


@pytest.mark.parametrize("part", ["interpreted.py", "interpreted_head.py"])
def test_ligers_kernels_in_the_interpreter(part: str) -> None:
    run(f"tests/model/liger/{part}")


def test_without_liger_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("liger_kernel", "triton"):
        monkeypatch.setitem(sys.modules, name, None)  # as Python marks what cannot be imported
    usable.kernels.cache_clear()
    found = usable.kernels()
    usable.kernels.cache_clear()
    assert isinstance(found, str)
    assert found.startswith("Liger cannot be imported (ModuleNotFoundError")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text", "phi3"])
def test_a_model_in_bfloat16(kind: str) -> None:
    from dynotune.model.elementwise import install
    from dynotune.model.elementwise.usable import Kernels
    from tests.model.elementwise.test_on_gpu import SHAPE, gradients
    from tests.model.lora.adapted import gap
    from tests.tiny import tiny_model

    liger = usable.kernels()
    assert isinstance(liger, Kernels), liger
    exact = tiny_model(kind, **SHAPE).to("cuda").train()
    model = tiny_model(kind, **SHAPE).to("cuda", torch.bfloat16).train()
    exact.load_state_dict({name: p.float() for name, p in model.state_dict().items()})
    right, own = gradients(exact), gradients(model)
    engaged = install(model, torch.bfloat16, kernels=liger)
    assert not any(engaged.others.values()), engaged.lines()
    found = gradients(model)
    assert engaged.calls_to_own == 0
    errors = [sum(gap(g[name], right[name]) for name in right) for g in (found, own)]
    assert errors[0] < 1.5 * errors[1]
