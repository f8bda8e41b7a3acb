"""Promise: a model's key follows what its log-probabilities depend on, and not an adapter that is switched off."""

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model

from dynotune.model.weight_files import weight_paths
from dynotune.reference import key_of
from tests.tiny import tiny_model


def adapted(seed: int, **config: Any) -> Any:
    base = tiny_model()
    torch.manual_seed(seed)
    return get_peft_model(base, LoraConfig(**{"r": 4, "target_modules": ["q_proj", "v_proj"], **config}))


def test_an_adapters_random_start_rank_and_dropout_are_no_part_of_it() -> None:
    first = key_of(adapted(1))
    assert key_of(adapted(2)) == first
    assert key_of(adapted(1, r=8, lora_dropout=0.3)) == first


def test_an_adapter_that_is_kept_is_a_part_of_it() -> None:
    assert key_of(adapted(1), keep_adapter=True).weights != key_of(adapted(1)).weights
    assert key_of(adapted(1), keep_adapter=True) != key_of(adapted(2), keep_adapter=True)
    first = key_of(adapted(1), keep_adapter=True)
    assert key_of(adapted(1, lora_dropout=0.3), keep_adapter=True) == first
    assert key_of(adapted(1, lora_alpha=99), keep_adapter=True).config != first.config


def test_what_is_trained_under_an_adapter_is_a_part_of_it() -> None:
    first, model = key_of(adapted(1)), adapted(2)
    norm = model.get_base_model().model.norm.weight
    norm.requires_grad_(True)
    assert key_of(model) == first
    norm.data[3] += 1e-3
    assert key_of(model).weights != first.weights


def test_weights_configuration_and_precision_are_parts_of_it() -> None:
    model: Any = tiny_model()
    first = key_of(model)
    assert first.precision == "float32 weights, computed as stored"
    assert key_of(model, computed_in=torch.bfloat16).precision == "float32 weights, computed in bfloat16"
    assert key_of(model, tails=True).columns == 4
    assert key_of(tiny_model().bfloat16()).precision == "bfloat16 weights, computed as stored"
    model.config.rms_norm_eps = 1e-3
    assert key_of(model).config != first.config
    model.model.norm.weight.data[3] += 1e-3
    assert key_of(model).weights != first.weights
    model.config.quantization_config = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    assert key_of(model).quantisation == "bitsandbytes"


def test_by_its_files_a_model_is_known_without_reading_its_tensors(tmp_path: Path) -> None:
    model: Any = tiny_model()
    model.save_pretrained(tmp_path / "model")
    files = weight_paths(str(tmp_path / "model"), "main", {})
    first = key_of(model, files, memory=tmp_path / "weights.json")
    model.model.norm.weight.data[3] += 1e-3
    assert key_of(model, files, memory=tmp_path / "weights.json") == first
    model.save_pretrained(tmp_path / "model")
    assert key_of(model, files, memory=tmp_path / "weights.json").weights != first.weights


def test_the_scales_of_quantised_weights_are_a_part_of_it() -> None:
    """As bitsandbytes keeps them: neither parameters nor buffers, and saved beside the weights."""

    class Quantised(torch.nn.Linear):
        scales = torch.ones(4)

        def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[f"{prefix}weight.absmax"] = self.scales

    model: Any = tiny_model()
    torch.manual_seed(0)
    layer = model.model.layers[0].mlp.up_proj = Quantised(32, 64, bias=False)
    first = key_of(model)
    assert key_of(model) == first
    layer.scales = 2 * layer.scales
    assert key_of(model).weights != first.weights
