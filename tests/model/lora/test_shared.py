"""Promise: linears that read the same tensor are computed together, only these, and only while that cannot be noticed."""

from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from dynotune.model.lora import install
from dynotune.model.lora.shared import LoraShared
from tests.model.lora.adapted import IDS, adapted_model, gap, largest_gap, loss_and_gradients


def places(shared: list[LoraShared]) -> list[list[str]]:
    return [[linear.module.dynotune_name for linear in group.linears] for group in shared]


def named(model: PeftModel) -> PeftModel:
    for name, module in model.named_modules():
        module.dynotune_name = name.rpartition(".")[2]
    return model


def nodes(model: PeftModel) -> dict[str, int]:
    """How often each autograd function of LoRA ran in one forward and backward."""
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        loss_and_gradients(model)
    names = [e.name for e in prof.events()]
    return {name: names.count(name) for name in ("LoraLinears", "LoraLinearsBackward")}


@pytest.mark.parametrize("kind", ["qwen2", "gemma2"])
def test_they_are_found_by_looking(kind: str) -> None:
    model = named(adapted_model(kind))
    engaged = install(model, torch.float32)
    assert places(engaged.copies.shared) == [["q_proj", "k_proj", "v_proj"], ["gate_proj", "up_proj"]] * 2
    assert engaged.lines() == ["fused LoRA: 14 of 14 modules (2 groups of 3 in one, 2 groups of 2 in one)"]
    assert nodes(model) == {"LoraLinears": 8, "LoraLinearsBackward": 8}
    assert all(group.unclaimed == 0 and group.x is None for group in engaged.copies.shared)
    engaged.uninstall()
    assert nodes(model) == {"LoraLinears": 0, "LoraLinearsBackward": 0}
    apart = install(model, torch.float32, share_inputs=False)
    assert not apart.copies.shared
    assert nodes(model) == {"LoraLinears": 14, "LoraLinearsBackward": 14}


@pytest.mark.parametrize(
    ("lora", "why", "together"),
    [
        ({"lora_dropout": 0.1}, "4 groups: dropout draws a mask of its own for each", ""),
        ({"rank_pattern": {"k_proj": 3}}, "2 groups: their adapters are scaled differently", " (2 groups of 2 in one)"),
    ],
)
def test_groups_that_training_computes_one_by_one_are_not_announced(lora: Any, why: str, together: str) -> None:
    lines = install(adapted_model(**lora).eval(), torch.float32).lines()
    first = f"fused LoRA: 14 of 14 modules{together}"
    assert lines == [first, f"linears of one input are computed one by one in {why}"]


def test_dropout_that_was_switched_off_keeps_no_linears_apart() -> None:
    model = adapted_model(lora_dropout=0.3)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    assert not any("one by one" in line for line in install(model, torch.float32).lines())


def test_looking_leaves_no_trace() -> None:
    model = adapted_model(lora_dropout=0.3)
    model.base_model.model.lm_head.eval()
    training = {n: m.training for n, m in model.named_modules()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    install(model, torch.float32)
    assert torch.equal(torch.get_rng_state(), state)
    assert {n: m.training for n, m in model.named_modules()} == training
    assert not any(linear._forward_pre_hooks for n, linear in model.named_modules() if n.endswith("_proj"))


@pytest.mark.parametrize(
    ("lora", "count"),
    [
        ({"target_modules": ["q_proj", "o_proj", "down_proj"]}, 6),
        ({"target_modules": ["q_proj", "v_proj"]}, 2),
        ({"rank_pattern": {"k_proj": 3}}, 12),  # its scaling differs: found, not computed together
        ({"rank_pattern": {"k_proj": 10}, "alpha_pattern": {"k_proj": 32}}, 8),
        ({"lora_dropout": 0.1}, 14),  # each draws a mask of its own
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ranks_targets_and_dropout(lora: dict[str, Any], count: int, dtype: torch.dtype) -> None:
    model = adapted_model(dtype=dtype, **lora)
    autocast = dtype == torch.bfloat16
    torch.manual_seed(3)
    loss, theirs = loss_and_gradients(model, autocast=autocast)
    install(model, dtype)
    torch.manual_seed(3)
    ours_loss, ours = loss_and_gradients(model, autocast=autocast)
    assert nodes(model) == {"LoraLinears": count, "LoraLinearsBackward": count}
    assert gap(ours_loss, loss) < (5e-4 if autocast else 1e-6)
    assert largest_gap(ours, theirs) < (8e-2 if autocast else 1e-5)


def test_exchanged_outputs_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control of the comparison with PEFT."""
    model = adapted_model()
    loss, theirs = loss_and_gradients(model)
    install(model, torch.float32)
    compute = LoraShared._compute

    def exchanged(self: LoraShared, x: Tensor, scale: float) -> tuple[Tensor, ...]:
        first, *others = compute(self, x, scale)
        return (first, *reversed(others))

    monkeypatch.setattr(LoraShared, "_compute", exchanged)
    ours_loss, ours = loss_and_gradients(model)
    assert gap(ours_loss, loss) > 1e-6
    assert largest_gap(ours, theirs) > 1e-3


def test_frozen_parts_of_a_group() -> None:
    model = adapted_model()
    layer = model.base_model.model.model.layers[1]
    layer.self_attn.k_proj.lora_A["default"].weight.requires_grad_(False)
    layer.self_attn.q_proj.lora_B["default"].weight.requires_grad_(False)
    for part in ("gate_proj", "up_proj"):
        getattr(layer.mlp, part).requires_grad_(False)
    _, theirs = loss_and_gradients(model)
    install(model, torch.float32)
    _, ours = loss_and_gradients(model)
    assert largest_gap(ours, theirs) < 1e-5


@pytest.fixture
def attention() -> Any:
    """q, k and v of one layer within a pass, and what they give by themselves."""
    model = adapted_model(dtype=torch.bfloat16)
    engaged = install(model, torch.bfloat16)
    part = model.base_model.model.model.layers[0].self_attn
    group = engaged.copies.shared[0]
    return engaged, group, (part.q_proj, part.k_proj, part.v_proj)


def test_another_tensor_is_computed_by_itself(attention: Any) -> None:
    engaged, group, (q, k, v) = attention
    x, other = torch.randn(2, 5, 32).bfloat16()
    alone = q(x), k(other), v(x)
    assert group.x is None, "outside a pass nothing waits"
    engaged.copies.depth = 1
    together = q(x), k(other), v(x)
    assert all(gap(a, b) < 1e-2 for a, b in zip(together, alone, strict=True))
    assert group.unclaimed == 1
    assert torch.equal(k(x), k(x.clone())), "nothing waits any more"


def test_a_first_one_called_twice(attention: Any) -> None:
    engaged, group, (q, k, v) = attention
    x = torch.randn(5, 32).bfloat16()
    engaged.copies.depth = 1
    assert torch.equal(q(x), q(x))
    assert group.unclaimed == 2
    k(x), v(x)
    assert group.x is None


def test_without_gradients_nothing_waits_for_a_call_with_them(attention: Any) -> None:
    engaged, _, (q, k, _) = attention
    x = torch.randn(5, 32).bfloat16()
    engaged.copies.depth = 1
    with torch.no_grad():
        q(x)
    assert k(x).requires_grad


def test_nothing_waits_over_a_change_of_the_weights(attention: Any) -> None:
    _, _, (q, k, _) = attention
    x = torch.randn(5, 32).bfloat16()
    q(x)
    before = k(x)
    k.lora_B["default"].weight.data.mul_(3)
    q(x)
    assert gap(k(x), before) > 1e-2


def test_a_pass_that_failed_leaves_nothing_waiting() -> None:
    model = adapted_model()
    engaged = install(model, torch.float32)
    k = model.base_model.model.model.layers[1].self_attn.k_proj

    def fail(*_: Any) -> None:
        raise IndexError

    handle = k.register_forward_pre_hook(fail)
    with pytest.raises(IndexError):
        loss_and_gradients(model)
    handle.remove()
    assert all(group.x is None for group in engaged.copies.shared)
    assert engaged.copies.depth == 0


def test_a_decoder_that_wants_more_than_tokens_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = adapted_model()

    def picky(*_: Any, **__: Any) -> None:
        raise ValueError("give pictures too")

    _, theirs = loss_and_gradients(model)
    with monkeypatch.context() as patch:
        patch.setattr(model.base_model.model.model, "forward", picky)
        engaged = install(model, torch.float32)
    assert engaged.lines()[1] == "linears of one input are computed one by one: ValueError: give pictures too"
    _, ours = loss_and_gradients(model)
    assert largest_gap(ours, theirs) < 1e-5
    assert model(input_ids=IDS).logits.shape[:2] == IDS.shape
