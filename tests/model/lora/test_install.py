"""Promise: a model whose LoRA is fused is the same model: its updates, its states, its files; and it can be taken back."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils import get_peft_model_state_dict
from torch import Tensor, nn

from dynotune.model.lora import install
from tests.model.lora.adapted import IDS, adapted_model, fill, gap, largest_gap, loss_and_gradients
from tests.tiny import tiny_model


def logits(model: Any, ids: Tensor = IDS) -> Tensor:
    with torch.no_grad():
        return model(input_ids=ids).logits  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["qwen2", "llama", "qwen3", "gemma2"])
def test_gradients_and_one_update_are_pefts(kind: str) -> None:
    model = adapted_model(kind)
    loss, theirs = loss_and_gradients(model)
    engaged = install(model, torch.float32)
    ours_loss, ours = loss_and_gradients(model)
    assert len(engaged.linears) == 14
    assert not engaged.others
    assert engaged.calls_to_peft == 0
    assert gap(ours_loss, loss) < 1e-6
    assert largest_gap(ours, theirs) < 1e-5
    torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1).step()
    after = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
    other = adapted_model(kind)
    loss_and_gradients(other)
    torch.optim.SGD([p for p in other.parameters() if p.requires_grad], lr=0.1).step()
    assert largest_gap(after, {n: p.detach() for n, p in other.named_parameters() if p.requires_grad}) < 1e-5


def test_dropout_of_a_whole_model_is_pefts() -> None:
    model = adapted_model(lora_dropout=0.2)
    torch.manual_seed(5)
    loss, theirs = loss_and_gradients(model)
    install(model, torch.float32)
    torch.manual_seed(5)
    ours_loss, ours = loss_and_gradients(model)
    assert gap(ours_loss, loss) < 1e-6
    assert largest_gap(ours, theirs) < 1e-5


@pytest.mark.parametrize("autocast", [True, False])
def test_a_bfloat16_base_is_as_near_to_float32_as_peft_is(autocast: bool) -> None:
    model, exact = adapted_model(dtype=torch.bfloat16), adapted_model()
    exact.load_state_dict(model.state_dict())
    reference_loss, reference = loss_and_gradients(exact)
    loss, theirs = loss_and_gradients(model, autocast=True)
    engaged = install(model, torch.bfloat16)
    ours_loss, ours = loss_and_gradients(model, autocast=autocast)
    assert not engaged.needs_autocast
    assert {g.dtype for g in ours.values()} == {torch.float32}
    assert abs(ours_loss - reference_loss) < max(1.5 * abs(loss - reference_loss), 2e-3)
    total = sum((theirs[k] - reference[k]).square().sum() for k in reference)
    assert sum((ours[k] - reference[k]).square().sum() for k in reference) < 1.5**2 * total


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_checkpointing_changes_nothing(dtype: torch.dtype) -> None:
    model = adapted_model(dtype=dtype, lora_dropout=0.2)
    install(model, dtype)
    torch.manual_seed(5)
    loss, plain = loss_and_gradients(model)
    model.enable_input_require_grads()
    model.base_model.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    torch.manual_seed(5)
    ours_loss, ours = loss_and_gradients(model)
    assert torch.equal(loss, ours_loss)
    assert all(torch.equal(ours[k], plain[k]) for k in plain)


def test_adapters_disabled_merged_and_unmerged() -> None:
    model, other = adapted_model().eval(), adapted_model().eval()
    engaged = install(model, torch.float32)
    with model.disable_adapter(), other.disable_adapter():
        assert torch.equal(logits(model), logits(other))
    assert engaged.calls_to_peft == 14
    for change in ("merge_adapter", "unmerge_adapter"):
        getattr(model, change)()
        getattr(other, change)()
        assert gap(logits(model), logits(other)) < 1e-6
    assert engaged.calls_to_peft == 28
    assert gap(logits(model), logits(adapted_model().eval())) < 1e-5
    assert torch.equal(logits(model.merge_and_unload()), logits(other.merge_and_unload()))


def test_another_active_adapter_is_pefts_own() -> None:
    model = adapted_model().eval()
    before = logits(model)
    engaged = install(model, torch.float32)
    model.add_adapter("second", LoraConfig(r=3, target_modules="all-linear"))
    fill(model, 1)
    model.base_model.set_adapter("second")
    second = logits(model)
    model.base_model.set_adapter(["default", "second"])
    both = logits(model)
    assert engaged.calls_to_peft == 28
    engaged.uninstall()
    assert torch.equal(both, logits(model))
    model.base_model.set_adapter("second")
    assert torch.equal(second, logits(model))
    model.base_model.set_adapter("default")
    assert gap(before, logits(model)) > 1e-3, "`fill` changed the first adapter too"


def test_files_and_names_stay_pefts(tmp_path: Path) -> None:
    model = adapted_model().eval()
    names, state = list(model.state_dict()), get_peft_model_state_dict(model)
    install(model, torch.float32)
    assert list(model.state_dict()) == names
    assert all(torch.equal(a, state[k]) for k, a in get_peft_model_state_dict(model).items())
    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(tiny_model("qwen2"), str(tmp_path)).eval()
    assert gap(logits(model), logits(loaded)) < 1e-6
    with torch.inference_mode():
        assert torch.equal(
            model.generate(input_ids=IDS, max_new_tokens=5), loaded.generate(input_ids=IDS, max_new_tokens=5)
        )


def test_uninstall_restores_pefts_forward_bit_by_bit() -> None:
    model = adapted_model()
    loss, theirs = loss_and_gradients(model)
    hooks = {n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in model.named_modules()}
    engaged = install(model, torch.float32)
    assert all("forward" in linear.module.__dict__ for linear in engaged.linears.values())
    engaged.uninstall()
    engaged.uninstall()
    ours_loss, ours = loss_and_gradients(model)
    assert torch.equal(loss, ours_loss)
    assert all(torch.equal(ours[k], theirs[k]) for k in theirs)
    assert all("forward" not in m.__dict__ for m in model.modules())
    assert hooks == {n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in model.named_modules()}
    assert len(install(model, torch.float32).linears) == 14, "and it can be put back"


def test_a_copied_model_computes_with_its_own_weights() -> None:
    model = adapted_model(dtype=torch.bfloat16).eval()
    install(model, torch.bfloat16)
    before = logits(model)
    twin = copy.deepcopy(model)
    fill(twin, 7)
    assert torch.equal(logits(model), before)
    assert gap(logits(twin), before) > 1e-3


REASONS = {
    "DoraLinearVariant": {"use_dora": True},
    "its adapter has a bias": {"lora_bias": True},
    "its base is trained": {"bias": "lora_only"},
}


@pytest.mark.parametrize("reason", list(REASONS))
def test_what_is_not_plain_keeps_pefts_forward_and_says_why(reason: str) -> None:
    model = adapted_model(**REASONS[reason], target_modules=["q_proj"])
    loss, theirs = loss_and_gradients(model)
    engaged = install(model, torch.float32)
    assert not engaged.linears
    assert all(reason in why for why in engaged.others.values())
    assert engaged.lines()[0] == "fused LoRA: 0 of 2 modules"
    assert reason in engaged.lines()[1]
    assert "and 1 more" in engaged.lines()[1]
    ours_loss, ours = loss_and_gradients(model)
    assert torch.equal(loss, ours_loss)
    assert all(torch.equal(ours[k], theirs[k]) for k in theirs)


def test_other_reasons() -> None:
    def reasons(model: nn.Module, compute: torch.dtype = torch.float32) -> set[str]:
        return set(install(model, compute).others.values())

    embedded = adapted_model(target_modules=["embed_tokens", "q_proj"])
    assert reasons(embedded) == {"is PEFT's layer.Embedding, not its plain lora.Linear"}
    assert reasons(adapted_model(), torch.bfloat16) == {"its base is float32 and products are in bfloat16"}
    twice = adapted_model()
    install(twice, torch.float32)
    assert reasons(twice) == {"its forward was replaced by someone else"}
    watched = adapted_model()
    q = watched.base_model.model.model.layers[0].self_attn.q_proj
    q.lora_A["default"].register_forward_hook(lambda *_: None)
    assert reasons(watched) == {"a hook watches a part of it"}
    merged = adapted_model()
    merged.merge_adapter()
    assert reasons(merged) == {"its adapter is merged"}
    low = get_peft_model(
        tiny_model("qwen2").half(), LoraConfig(target_modules=["q_proj"]), autocast_adapter_dtype=False
    )
    assert reasons(low) == {"its base is float16 and products are in float32"}


def test_a_hook_that_comes_later_is_called() -> None:
    model = adapted_model().eval()
    engaged = install(model, torch.float32)
    seen = []
    q = model.base_model.model.model.layers[0].self_attn.q_proj
    for part in (q, q.base_layer, q.lora_A["default"], q.lora_B["default"]):
        part.register_forward_hook(lambda module, args, output: seen.append(output.shape[-1]))
    logits(model)
    assert sorted(seen) == sorted([32, 32, 5, 32])
    assert engaged.calls_to_peft == 1


@pytest.mark.parametrize(
    ("lora", "needs"),
    [
        ({}, False),
        ({"modules_to_save": ["lm_head"]}, True),
        ({"trainable_token_indices": {"embed_tokens": [1]}}, True),
        ({"use_dora": True}, True),
    ],
)
def test_autocast_is_needed_where_other_float32_weights_meet_activations(lora: dict[str, Any], needs: bool) -> None:
    model = adapted_model(dtype=torch.bfloat16, **lora)
    for p in model.parameters():
        if p.requires_grad:
            p.data = p.data.float()
    assert install(model, torch.bfloat16).needs_autocast is needs
    if not needs:
        loss_and_gradients(model, autocast=False)
    loss_and_gradients(model, autocast=True)


@pytest.mark.long
def test_compiled_layers_are_one_graph() -> None:
    model = adapted_model(dtype=torch.bfloat16)
    install(model, torch.bfloat16)
    _, eager = loss_and_gradients(model)
    torch._dynamo.reset()
    for layer in model.base_model.model.model.layers:
        layer.compile(fullgraph=True, backend="aot_eager")
    for _ in range(2):
        _, compiled = loss_and_gradients(model)
        assert largest_gap(compiled, eager) < 1e-2
        fill(model, 1)  # seen by compiled layers too
        _, changed = loss_and_gradients(model)
        assert largest_gap(changed, eager) > 0.1
        fill(model, 0)
    torch._dynamo.reset()
