"""Promise: where an adapter's start was taken out of the weights under it, the reference has it, and its key says so."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from safetensors.torch import save_file

from dynotune.reference import Key, as_reference, begins_at_zero, key_of, start_changes_base, trained_under_adapter
from tests.tiny import tiny_model

IDS = torch.tensor([[5, 9, 300, 17, 2, 41]])
CHANGES_BASE = ("pissa", "pissa_niter_4", "olora")
LEAVES_BASE = (True, False, "gaussian", "orthogonal", "mica")


def adapted(start: Any, seed: int = 0, **config: Any) -> Any:
    base = tiny_model()
    torch.manual_seed(seed)
    targets = {"r": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    return get_peft_model(base, LoraConfig(**{**targets, "init_lora_weights": start, **config}))


def of_model(model: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model.eval()(input_ids=IDS).logits
    return logits


def of_reference(model: Any) -> torch.Tensor:
    with as_reference(model):
        logits: torch.Tensor = model(input_ids=IDS).logits
    return logits


@pytest.fixture
def key(tmp_path: Path) -> Any:
    file = tmp_path / "model.safetensors"
    save_file({name: value.clone() for name, value in tiny_model().state_dict().items()}, file)

    def given(model: Any, **how: Any) -> Key:
        return key_of(model, [file], memory=tmp_path / "weights.json", **how)

    return given


@pytest.mark.parametrize("start", CHANGES_BASE + LEAVES_BASE)
def test_what_is_said_of_a_start_is_what_peft_did(start: Any) -> None:
    model, base = adapted(start), of_model(tiny_model())
    with model.disable_adapter():
        off = (of_model(model) - base).abs().max()
    assert start_changes_base(model) is bool(off > 1e-3) is (start in CHANGES_BASE)


@pytest.mark.parametrize("start", [*CHANGES_BASE, True])
def test_the_reference_is_what_the_run_begins_at(start: Any) -> None:
    model = adapted(start, lora_dropout=0.5).train()
    reference = of_reference(model)
    torch.testing.assert_close(reference, of_model(tiny_model()), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(reference, of_model(model), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("start", CHANGES_BASE)
def test_its_key_is_of_its_tensors_and_never_of_the_files(start: Any, key: Any) -> None:
    usual, kept = key(adapted(True)), key(adapted(start))
    assert kept.weights != usual.weights
    assert kept.config != usual.config
    assert key_of(adapted(start)) == kept == key(adapted(start), keep_adapter=True)
    assert key(adapted(start, r=2)).weights != kept.weights
    moved = adapted(start)
    next(p for name, p in moved.named_parameters() if "lora_B" in name).data[0, 0] += 1e-2
    assert key(moved).weights != kept.weights


def test_other_starts_keep_the_key_of_the_files(key: Any) -> None:
    assert key(adapted("gaussian")) == key(adapted(True, seed=7)) == key(adapted("orthogonal"))


@pytest.mark.parametrize(("start", "changes"), [("loftq", True), ("corda", True), ("new", True), ("eva", False)])
def test_starts_that_need_data_or_are_not_known(start: str, changes: bool) -> None:
    model = adapted(True)
    assert not start_changes_base(model)
    model.peft_config["default"].init_lora_weights = start
    assert start_changes_base(model) is changes
    assert not start_changes_base(tiny_model())


def test_kasa_cuts_the_weights_under_it() -> None:
    config = pytest.importorskip("peft.tuners.lora.config")
    if not hasattr(config, "KasaConfig"):
        pytest.skip("this version of PEFT has no KaSA")
    model = adapted(True, kasa_config=config.KasaConfig())
    assert start_changes_base(model)


@pytest.mark.parametrize(
    ("start", "more"), [(True, {}), (True, {"target_modules": ["q_proj", "embed_tokens"]}), ("gaussian", {})]
)
def test_an_adapter_that_begins_at_zero_is_seen_to_until_it_is_trained(start: Any, more: dict[str, Any]) -> None:
    model = adapted(start, **more)
    assert begins_at_zero(model)
    factors = [p for name, p in model.named_parameters() if "lora_B" in name or "lora_embedding_A" in name]
    factors[-1].data.view(-1)[0] = 1e-4
    assert not begins_at_zero(model)


@pytest.mark.parametrize(("start", "more"), [(True, {"modules_to_save": ["lm_head"]}), (False, {})])
def test_what_may_not_begin_at_zero_does_not_count_as_if_it_did(start: bool, more: dict[str, Any]) -> None:
    assert not begins_at_zero(adapted(start, **more))
    assert begins_at_zero(tiny_model())


def test_tokens_that_an_adapter_puts_before_rows_are_its_own() -> None:
    """Switched off, the model reads rows alone: nothing under the adapter is trained. Biases are, if asked for."""
    prompt: Any = get_peft_model(tiny_model(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
    assert any("prompt_encoder" in name for name, p in prompt.named_parameters() if p.requires_grad)
    assert trained_under_adapter(prompt) == []
    biases = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", bias="lora_only")
    biased: Any = get_peft_model(tiny_model(attention_bias=True), biases)
    assert all(name.endswith("q_proj.base_layer.bias") for name in trained_under_adapter(biased))
