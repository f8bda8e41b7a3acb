"""Promise: the reference is the model without its adapter and dropout, and afterwards the model is what it was."""

from typing import Any

import pytest
import torch
from peft import IA3Config, LoraConfig, get_peft_model

from dynotune.reference import as_reference
from tests.tiny import tiny_model

IDS = torch.tensor([[5, 9, 300, 17, 2, 41]])


def with_adapter() -> Any:
    config = LoraConfig(r=4, target_modules=["q_proj", "lm_head"], lora_dropout=0.5, task_type="CAUSAL_LM")
    model = get_peft_model(tiny_model(), config)
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_()
    return model.train()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"use_dora": True},
        {"modules_to_save": ["lm_head"], "target_modules": ["q_proj"]},
        {"trainable_token_indices": [5, 9, 300], "target_modules": ["q_proj"]},
        {"target_modules": ["embed_tokens", "q_proj"]},
    ],
)
def test_what_is_switched_off_is_what_peft_switches_off(changes: dict[str, Any]) -> None:
    config = {"r": 4, "target_modules": ["q_proj", "lm_head"], "task_type": "CAUSAL_LM", **changes}
    model = get_peft_model(tiny_model(tie_word_embeddings=False), LoraConfig(**config)).eval()
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data.normal_(std=0.3)
    with torch.no_grad(), model.disable_adapter():
        right = model(input_ids=IDS).logits
    with as_reference(model):
        assert torch.equal(model(input_ids=IDS).logits, right)
    with torch.no_grad():
        assert (model(input_ids=IDS).logits - right).abs().max() > 1e-3  # negative control


def test_an_adapter_that_is_not_lora_is_switched_off_too() -> None:
    config = IA3Config(target_modules=["k_proj"], feedforward_modules=[], task_type="CAUSAL_LM")
    model: Any = get_peft_model(tiny_model(), config).train()
    before = state(model)
    for name, parameter in model.named_parameters():
        if "ia3" in name:
            parameter.data.fill_(3.0)
    with torch.no_grad():
        right = tiny_model()(input_ids=IDS).logits
    with as_reference(model):
        assert torch.equal(model(input_ids=IDS).logits, right)
    assert state(model) == before


def state(model: Any) -> list[Any]:
    return [
        [m.training for m in model.modules()],
        [p.requires_grad for p in model.parameters()],
        [m.disable_adapters for m in model.modules() if hasattr(m, "disable_adapters")],
        model.active_adapters if hasattr(model, "peft_config") else None,
        torch.is_grad_enabled(),
    ]


def test_it_computes_what_the_base_computes() -> None:
    model, base = with_adapter(), tiny_model().eval()
    base.load_state_dict(_base_weights(model))
    with as_reference(model):
        got = model(input_ids=IDS).logits
        assert torch.equal(got, model(input_ids=IDS).logits)  # no dropout
    assert not got.requires_grad
    torch.testing.assert_close(got, base(input_ids=IDS).logits, rtol=1e-6, atol=1e-6)
    with torch.no_grad():
        assert (
            model.eval()(input_ids=IDS).logits - got
        ).abs().max() > 1e-3  # negative control: the adapter does something


def _base_weights(model: Any) -> dict[str, torch.Tensor]:
    return {
        name.replace(".base_layer", ""): value
        for name, value in model.get_base_model().state_dict().items()
        if "lora_" not in name
    }


def test_everything_is_as_it_was_also_after_an_error() -> None:
    model = with_adapter()
    model.get_base_model().model.layers[0].eval()  # on purpose
    next(p for name, p in model.named_parameters() if "lora_A" in name).requires_grad_(False)  # on purpose, too
    before = state(model)
    with as_reference(model):
        assert state(model) != before
    assert state(model) == before

    def fails() -> None:
        with as_reference(model):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fails()
    assert state(model) == before
    with model.disable_adapter():  # negative control: PEFT alone leaves the frozen adapter trained
        pass
    assert state(model) != before


def test_an_adapter_whose_training_goes_on_is_a_part_of_its_reference() -> None:
    model = with_adapter()
    with as_reference(model, keep_adapter=True):
        kept = model(input_ids=IDS).logits
    with torch.no_grad():
        assert torch.equal(model.eval()(input_ids=IDS).logits, kept)


def test_a_model_without_an_adapter_and_autocast() -> None:
    model = tiny_model().train()
    before = state(model)
    with as_reference(model, lambda: torch.autocast("cpu", torch.bfloat16)):
        assert torch.is_autocast_enabled("cpu")
        assert not any(m.training for m in model.modules())
        assert not model(input_ids=IDS).logits.requires_grad
    assert state(model) == before
    assert not torch.is_autocast_enabled("cpu")
