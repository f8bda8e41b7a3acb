"""Promise: adapters' parts that the gated activation's kernel adds are what LoRA's own products would have added; where
anybody would see a linear without its adapter, they are added as before."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dynotune.model import lora, product_settings
from dynotune.model.elementwise import gate_lora, install
from dynotune.model.elementwise.gate_lora import MOST_RANK, AdaptersBetween, adapters_between, candidates, reference
from tests.model.elementwise.stand_ins import stand_ins
from tests.model.lora.adapted import IDS, adapted_model, gap, largest_gap, loss_and_gradients


class Standing:
    """A model with fused LoRA and stand-ins for the kernels, before and behind."""

    def __init__(self, kind: str = "qwen2", between: bool = True, function: Any = reference, **more: Any) -> None:
        self.model: Any = adapted_model(kind, **more)
        self.lora = lora.install(self.model, torch.float32)
        install(self.model, torch.float32, kernels=stand_ins())
        self.fused = candidates(self.model)
        self.why: list[str] = []
        for fused in self.fused.values() if between else ():
            one = adapters_between(fused, function, MOST_RANK)
            if isinstance(one, AdaptersBetween):
                fused.adapters = one
            else:
                self.why.append(one)

    @property
    def calls(self) -> int:
        return sum(fused.adapters.calls for fused in self.fused.values() if fused.adapters is not None)

    @property
    def gate(self) -> Any:
        return self.model.base_model.model.model.layers[0].mlp.gate_proj

    @property
    def down(self) -> Any:
        return self.model.base_model.model.model.layers[0].mlp.down_proj


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gemma2", "qwen3"])
def test_the_same_loss_and_gradients(kind: str) -> None:
    loss, gradients = loss_and_gradients(Standing(kind, between=False).model)
    standing = Standing(kind)
    found_loss, found = loss_and_gradients(standing.model)
    assert standing.calls == 2
    assert not standing.why
    assert gap(found_loss, loss) < 1e-6
    assert largest_gap(found, gradients) < 1e-5


def test_adapters_of_other_ranks_and_scales() -> None:
    ranks: dict[str, Any] = {"rank_pattern": {"gate_proj": 3, "down_proj": 7}, "r": 5, "lora_alpha": 10}
    ranks["alpha_pattern"] = {"gate_proj": 6, "down_proj": 5}  # gate and up are scaled alike, else they stay apart
    loss, gradients = loss_and_gradients(Standing(between=False, **ranks).model)
    standing = Standing(**ranks)
    found_loss, found = loss_and_gradients(standing.model)
    assert standing.calls == 2
    assert gap(found_loss, loss) < 1e-6
    assert largest_gap(found, gradients) < 1e-5


class _Halved(torch.autograd.Function):
    """The same values, half of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] / 2


@pytest.mark.parametrize("part", ["outputs", "gradient", "of B of gate", "of B of up", "of A of down"])
def test_a_part_that_is_not_added_shows(part: str) -> None:
    """The control: what is compared above depends on both sums and on each of the three gradients."""

    def forgets(*args: Any) -> Tensor:
        *first, below, tanh = args
        if part == "outputs":
            first[3] = torch.zeros_like(first[3])
        elif part == "gradient":
            gate, down = first[0], first[7].detach()
            below = type(below)("gradient", gate.new_zeros(gate.numel() // gate.shape[-1], len(down)), (down,))
        else:
            place = ("of B of gate", "of B of up", "of A of down").index(part) + 5
            first[place] = _Halved.apply(first[place])
        return reference(*first, below, tanh)

    _, gradients = loss_and_gradients(Standing(between=False).model)
    standing = Standing()
    for fused in standing.fused.values():
        assert fused.adapters is not None
        fused.adapters.function = forgets
    _, found = loss_and_gradients(standing.model)
    assert largest_gap(found, gradients) > 1e-3
    assert Standing(function=forgets).why[0].startswith("it computes something else")


def test_recomputed_layers_give_the_same_gradients() -> None:
    standing = Standing()
    _, gradients = loss_and_gradients(standing.model)
    standing.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    standing.model.enable_input_require_grads()
    before = standing.calls
    _, found = loss_and_gradients(standing.model)
    assert standing.calls == before + 4
    assert largest_gap(found, gradients) < 1e-6


def test_gradients_of_two_micro_batches_add_up_and_a_graph_may_be_kept() -> None:
    plain, standing = Standing(between=False).model, Standing().model
    for model in (plain, standing):
        losses = [model(input_ids=ids, labels=ids).loss for ids in (IDS, IDS.flip(1))]
        losses[0].backward(retain_graph=True)
        losses[1].backward()
        losses[0].backward()
    right = {n: p.grad for n, p in plain.named_parameters() if p.grad is not None}
    assert largest_gap({n: p.grad for n, p in standing.named_parameters() if p.grad is not None}, right) < 1e-5


def outputs_of(model: Any, module: nn.Module) -> Tensor:
    seen: list[Tensor] = []
    handle = module.register_forward_hook(lambda module, args, output: seen.append(output.detach().clone()))
    model(input_ids=IDS)
    handle.remove()
    return seen[0]


def test_a_hook_sees_the_whole_linear() -> None:
    standing = Standing()
    plain = Standing(between=False)
    right = outputs_of(plain.model, plain.gate)
    assert gap(outputs_of(standing.model, standing.gate), right) < 1e-6
    assert standing.calls == 1, "the other layer goes on"
    whys = [dict(fused.adapters.aside.whys) for fused in standing.fused.values() if fused.adapters is not None]
    assert whys == [{"a hook sees its linears": 1}, {}]
    standing.model(input_ids=IDS)
    assert standing.calls == 3


def disabled(standing: Standing) -> Any:
    return standing.model.disable_adapter()


def merged(standing: Standing) -> None:
    standing.down.merge()


def watched_between(standing: Standing) -> None:
    for fused in standing.fused.values():
        fused.__dict__["between"] = fused.between


def taken_out(standing: Standing) -> None:
    standing.lora.uninstall()


@pytest.mark.parametrize("change", [disabled, merged, watched_between, taken_out])
def test_where_it_is_not_plain_lora_everything_is_as_without(change: Any) -> None:
    outputs = []
    for between in (False, True):
        standing = Standing(between=between)
        around = change(standing)
        if around is None:
            outputs.append(standing.model(input_ids=IDS).logits)
        else:
            with around:
                outputs.append(standing.model(input_ids=IDS).logits)
        assert standing.calls == (1 if between and change is merged else 0)
    assert gap(outputs[1], outputs[0]) < 1e-6


def test_dropout_that_comes_later_is_seen() -> None:
    standing = Standing()
    for layer in standing.model.base_model.model.model.layers:
        layer.mlp.down_proj.lora_dropout["default"] = nn.Dropout(0.5)
    standing.model.train()
    standing.model(input_ids=IDS)
    assert standing.calls == 0
    standing.model.eval()
    standing.model(input_ids=IDS)
    assert standing.calls == 2


def test_an_error_in_down_leaves_nothing_behind() -> None:
    standing = Standing()
    weight = standing.down.base_layer.weight
    standing.down.base_layer.weight = nn.Parameter(weight[:, :-1], requires_grad=False)
    with pytest.raises(RuntimeError):
        standing.model(input_ids=IDS)
    assert all(fused.adapters is not None and fused.adapters.down.left_out is None for fused in standing.fused.values())


def test_a_kernel_that_raises_leaves_nothing_behind_either() -> None:
    """Taken out after that, LoRA alone must add what down leaves out to nobody."""
    _, gradients = loss_and_gradients(Standing(between=False).model)
    standing = Standing()

    def raises(*args: Any) -> Tensor:
        raise torch.OutOfMemoryError("no memory")

    for fused in standing.fused.values():
        assert fused.adapters is not None
        fused.adapters.function = raises
    with pytest.raises(torch.OutOfMemoryError):
        standing.model(input_ids=IDS)
    for fused in standing.fused.values():
        fused.adapters = None
    _, found = loss_and_gradients(standing.model)
    assert largest_gap(found, gradients) < 1e-6


def looks(module: nn.Module, args: Any, *output: Any) -> None:
    pass


@pytest.mark.parametrize(
    "register",
    ["register_module_forward_hook", "register_module_forward_pre_hook", "register_module_full_backward_hook"],
)
def test_a_hook_of_all_modules_sees_whole_linears(register: str) -> None:
    """One of backward passes also gives gate and up an input each, so that they are not computed together."""
    right = loss_and_gradients(Standing(between=False).model)
    standing = Standing()
    handle = getattr(nn.modules.module, register)(looks)
    try:
        loss, found = loss_and_gradients(standing.model)
    finally:
        handle.remove()
    assert standing.calls == 0
    assert gap(loss, right[0]) < 1e-6
    assert largest_gap(found, right[1]) < 1e-5


def test_linears_that_were_unloaded_are_not_called() -> None:
    standing, plain = Standing(), Standing(between=False)
    right = plain.model.unload()(input_ids=IDS).logits
    assert gap(standing.model.unload()(input_ids=IDS).logits, right) < 1e-6


def test_the_kernel_gets_weights_of_which_it_owes_no_gradient() -> None:
    """Else autograd takes them for used twice, and a graph has no branches for them."""
    owed: list[bool] = []

    def notes(*args: Any) -> Tensor:
        owed.extend(one.requires_grad for one in args[2:5])
        return reference(*args)

    standing = Standing(function=notes)
    owed.clear()
    loss_and_gradients(standing.model)
    assert owed == [False] * 6


def test_what_is_frozen_gets_no_gradient() -> None:
    plain, standing = Standing(between=False), Standing()
    for model in (plain.model, standing.model):
        for name, p in model.named_parameters():
            if "gate_proj.lora_B" in name or "down_proj.lora_A" in name:
                p.requires_grad_(False)
    _, gradients = loss_and_gradients(plain.model)
    _, found = loss_and_gradients(standing.model)
    assert standing.calls == 2
    assert largest_gap(found, gradients) < 1e-5


def test_the_input_of_down_is_not_kept() -> None:
    """The widest tensor of a layer is made again for the one gradient that reads it."""
    kept: dict[bool, list[tuple[int, ...]]] = {}
    for between in (False, True):
        standing = Standing(between=between)
        width, seen = standing.down.base_layer.in_features, []

        def keep(x: Tensor, width: int = width, seen: list[Any] = seen) -> Tensor:
            if x.shape[-1:] == (width,) and x.numel() == IDS.numel() * width:
                seen.append(tuple(x.shape))
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            standing.model(input_ids=IDS)
        kept[between] = seen
    assert len(kept[False]) == 2 * 4, "control: gate, its activation, up, and the product that down is given"
    assert len(kept[True]) == 2 * 2, "gate and up"


def test_layers_that_are_alike_are_compared_once() -> None:
    calls = 0

    def counts(*args: Any) -> Tensor:
        nonlocal calls
        calls += 1
        return reference(*args)

    standing = Standing(function=counts)
    assert not standing.why
    assert len(standing.fused) == 2
    once, calls = calls, 0
    assert once > 0
    other = Standing(function=counts)
    assert not other.why
    assert calls == 0
    Standing(function=counts, r=3)
    assert calls == once, "of another rank"


def test_it_is_compared_in_full_precision_whatever_the_run_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tf32: true` makes PyTorch's own products 1,000 times as far off as what is allowed here."""
    monkeypatch.setattr(product_settings, "tf32_of", lambda device: torch.backends.cuda.matmul.allow_tf32)
    before = torch.backends.cuda.matmul.allow_tf32
    seen: list[bool] = []

    def notes(*args: Any) -> Tensor:
        seen.append(torch.backends.cuda.matmul.allow_tf32)
        return reference(*args)

    try:
        torch.backends.cuda.matmul.allow_tf32 = True
        assert not Standing(function=notes).why
        assert torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert seen
    assert not any(seen)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"kind": "phi3"}, "gate and up are one linear"),
        ({"lora_dropout": 0.1}, "its adapters drop out"),
        ({"target_modules": ["q_proj", "gate_proj", "up_proj"]}, "down_proj is no fused LoRA linear"),
        ({"target_modules": ["gate_proj", "down_proj"]}, "up_proj is no fused LoRA linear"),
        ({"r": 256}, "its rank is above 128"),
    ],
)
def test_why_not_is_said(settings: dict[str, Any], reason: str) -> None:
    standing = Standing(**settings)
    assert standing.why == [reason] * 2
    standing.model(input_ids=IDS)
    assert standing.calls == 0


def test_others_kernels_are_left_alone() -> None:
    assert adapters_between(None, reference, MOST_RANK) == "its gated activation is not our kernel's"
    assert not gate_lora.candidates(adapted_model("qwen2"))
