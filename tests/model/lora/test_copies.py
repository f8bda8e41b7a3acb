"""Promise: what is computed with is never older than the trained weights, whoever changes them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from peft import PeftModel
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor

from dynotune.model.lora import install
from dynotune.model.lora.copies import ALIGN, ComputeCopies
from tests.model.lora.adapted import IDS, adapted_model, gap, largest_gap, loss_and_gradients


def adamw(model: PeftModel) -> None:
    loss_and_gradients(model)
    torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05, fused=True).step()


def sgd(model: PeftModel) -> None:
    loss_and_gradients(model)
    torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=5.0, fused=True).step()


def through_data(model: PeftModel) -> None:
    for p in model.parameters():
        if p.requires_grad:
            p.data.mul_(2)


def other_storage(model: PeftModel) -> None:
    for p in model.parameters():
        if p.requires_grad:
            p.data = p.data * 2


def load(model: PeftModel) -> None:
    set_peft_model_state_dict(model, {k: v * 2 for k, v in get_peft_model_state_dict(model).items()})


def assign(model: PeftModel) -> None:
    state = {k: v * 2 if "lora_" in k else v for k, v in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


CHANGES = [adamw, sgd, through_data, other_storage, load, assign]


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits  # type: ignore[no-any-return]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_weights_is_in_the_next_forward(change: Callable[[PeftModel], None]) -> None:
    model = adapted_model(dtype=torch.bfloat16)
    engaged = install(model, torch.bfloat16)
    before = logits(model)
    change(model)
    after = logits(model)
    assert gap(after, before) > 0.05
    assert engaged.calls_to_peft == 0
    fresh = adapted_model(dtype=torch.bfloat16)
    fresh.load_state_dict(model.state_dict())
    install(fresh, torch.bfloat16)
    assert torch.equal(after, logits(fresh))


@pytest.mark.parametrize("change", CHANGES[:4])
def test_that_test_can_fail(change: Callable[[PeftModel], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: where nothing refreshes, the next forward is the last one again."""
    model = adapted_model(dtype=torch.bfloat16)
    install(model, torch.bfloat16)
    before = logits(model)
    monkeypatch.setattr(ComputeCopies, "refresh", lambda self: None)
    change(model)
    assert torch.equal(logits(model), before)


@pytest.mark.parametrize("change", [adamw, through_data])
def test_a_part_called_by_itself_sees_the_change_too(change: Callable[[PeftModel], None]) -> None:
    model = adapted_model(dtype=torch.bfloat16)
    install(model, torch.bfloat16)
    mlp = model.base_model.model.model.layers[1].mlp
    x = torch.randn(5, 32).bfloat16()
    before = mlp(x)
    change(model)
    after = mlp(x)
    assert gap(after, before) > 0.01
    logits(model)  # refreshes everything
    assert torch.equal(mlp(x), after)


def test_several_forwards_before_one_backward() -> None:
    model = adapted_model(dtype=torch.bfloat16)
    install(model, torch.bfloat16)
    _, first = loss_and_gradients(model, IDS[:1])
    _, second = loss_and_gradients(model, IDS[1:])
    model.zero_grad()
    (model(input_ids=IDS[:1], labels=IDS[:1]).loss + model(input_ids=IDS[1:], labels=IDS[1:]).loss).backward()
    both = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert largest_gap(both, {k: first[k] + second[k] for k in first}) < 1e-6


def test_a_forward_that_failed_does_not_stop_the_next_from_refreshing() -> None:
    model = adapted_model(dtype=torch.bfloat16)
    engaged = install(model, torch.bfloat16)
    with pytest.raises(IndexError):
        fail_in_the_last_layer(model)
    assert engaged.copies.depth == 0
    before = logits(model)
    through_data(model)
    assert gap(logits(model), before) > 0.05


def fail_in_the_last_layer(model: PeftModel) -> None:
    def fail(*_: Any) -> None:
        raise IndexError

    handle = model.base_model.model.model.layers[1].register_forward_hook(fail)
    try:
        logits(model)
    finally:
        handle.remove()


def test_one_buffer_at_one_place() -> None:
    model = adapted_model(dtype=torch.bfloat16)
    engaged = install(model, torch.bfloat16)
    copies = [c for linear in engaged.linears.values() for c in (linear.a, linear.b)]
    places = [c.data_ptr() for c in copies if c is not None]
    assert len(copies) == len(places) == 28
    assert len({c.untyped_storage().data_ptr() for c in copies if c is not None}) == 1
    starts = [linear.b.data_ptr() for linear in engaged.linears.values() if linear.b is not None]
    starts += [shared.a.data_ptr() for shared in engaged.copies.shared if shared.a is not None]
    assert len(starts) == 14 + 4
    assert all((start - min(places)) % (ALIGN * 2) == 0 for start in starts)
    with torch.inference_mode():
        model(input_ids=IDS)
    loss_and_gradients(model)
    adamw(model)
    logits(model)
    assert places == [
        c.data_ptr() for linear in engaged.linears.values() for c in (linear.a, linear.b) if c is not None
    ]


def test_float32_needs_no_copies() -> None:
    engaged = install(adapted_model(), torch.float32)
    assert not engaged.copies.linears
    assert all(linear.a is None and linear.b is None for linear in engaged.linears.values())
    engaged.refresh()
