"""Promise: what is printed about a model is read off the model, and a model that is not what was asked for is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

from dynotune.config.keys.model import ModelConfig
from dynotune.errors import ModelError
from dynotune.model.describe import describe_model
from dynotune.model.load import check_model, load_model
from dynotune.model.precision import Precision
from tests.tiny import tiny_model

CPU = torch.device("cpu")


def test_device_precision_parameters_and_trainable_share_are_counted_from_the_weights() -> None:
    model = tiny_model(tie_word_embeddings=True)
    for name, p in model.named_parameters():
        p.requires_grad_("norm" in name)
        if "mlp" in name:
            p.data = p.data.to(torch.bfloat16)
    facts = describe_model(model, CPU)
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    half = sum(n for name, n in sizes.items() if "mlp" in name)
    trained = sum(n for name, n in sizes.items() if "norm" in name)
    assert facts.parameters == sum(sizes.values())  # tied weights once
    assert facts.precision == {"bfloat16": half, "float32": sum(sizes.values()) - half}
    assert facts.trainable == trained
    text = "\n".join(facts.lines())
    assert "LlamaForCausalLM on CPU" in text
    assert f"{trained:,} trainable ({trained / sum(sizes.values()):.2%}, float32)" in text


def precision(weights: torch.dtype) -> Precision:
    return Precision(weights, compute_bf16=False)


def test_weights_in_another_precision_than_asked_are_refused() -> None:
    model = tiny_model()
    check_model(model, ModelConfig(), precision(torch.float32), CPU)
    with pytest.raises(ModelError, match=r"not torch\.bfloat16 as asked"):
        check_model(model, ModelConfig(), precision(torch.bfloat16), CPU)


def test_weights_on_another_device_are_refused() -> None:
    with pytest.raises(ModelError, match=r"meta.*not on cpu"):
        check_model(tiny_model().to("meta"), ModelConfig(), precision(torch.float32), CPU)


def test_another_attention_than_asked_is_refused() -> None:
    model: Any = tiny_model()
    with pytest.raises(ModelError, match=r"attn_implementation: eager.*runs `sdpa`"):
        check_model(model, ModelConfig(attn_implementation="eager"), precision(torch.float32), CPU)


def test_attention_that_is_asked_for_runs(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path)
    config = ModelConfig(model_name_or_path=str(tmp_path), attn_implementation="eager")
    assert load_model(config, precision(torch.float32), CPU).config._attn_implementation == "eager"


def test_weights_that_are_missing_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tiny_model().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({k: v for k, v in load_file(file).items() if "q_proj" not in k}, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"2 weights.*q_proj.*random_weights"):
        load_model(ModelConfig(model_name_or_path=str(tmp_path)), precision(torch.float32), CPU)
