"""Promise: kernels stand in where they compute the same, which is seen and not believed; a model is given back as it was."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dynotune.model.elementwise import Engaged, gate, install, norm
from dynotune.model.elementwise import install as package_install
from dynotune.model.elementwise.usable import Kernels
from tests.model.elementwise.stand_ins import rotate, stand_ins
from tests.model.lora.adapted import IDS, adapted_model, gap, largest_gap, loss_and_gradients
from tests.tiny import tiny_model

KINDS = ("llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "olmo2", "phi3", "qwen2_moe")


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Kernels:
    return put(monkeypatch)


def put(monkeypatch: pytest.MonkeyPatch, **other: Any) -> Kernels:
    import sys

    made = stand_ins(**other)
    monkeypatch.setattr(sys.modules["dynotune.model.elementwise.install"], "usable", lambda device: made)
    return made


def calls(kernels: Any) -> dict[str, int]:
    return {name: getattr(kernels, name).calls for name in ("rms_norm", "gated", "gated_halves", "rotary")}


def forwards(model: nn.Module) -> int:
    return sum("forward" in vars(module) for module in model.modules())


def test_without_a_gpu_nothing_happens_and_nothing_is_said() -> None:
    model = tiny_model()
    engaged = package_install(model, torch.float32)
    assert engaged.lines() == []
    assert not forwards(model)
    engaged.uninstall()


@pytest.mark.parametrize("kind", KINDS)
def test_all_of_a_model_runs_through_the_kernels_with_the_same_gradients(kind: str, kernels: Kernels) -> None:
    model = tiny_model(kind).train()
    loss, gradients = loss_and_gradients(model)
    engaged = install(model, torch.float32)
    before = calls(kernels)
    found_loss, found = loss_and_gradients(model)
    made = {name: n - before[name] for name, n in calls(kernels).items()}
    norms = sum(type(m).__name__.endswith("RMSNorm") for m in model.modules())
    layers = len(model.model.layers)
    assert made["rms_norm"] == norms == len(engaged.fused["RMSNorm"])
    assert made["gated"] + made["gated_halves"] == layers
    assert made["rotary"] == layers
    assert engaged.calls_to_own == 0
    assert engaged.lines() == [
        f"elementwise kernels: {norms} of {norms} RMSNorms, {layers} of {layers} gated activations, {layers} of {layers}"
        " rotary embeddings"
    ]
    assert gap(found_loss, loss) < 1e-6
    assert largest_gap(found, gradients) < 1e-5


@pytest.mark.parametrize("kind", ["qwen3", "phi3"])
def test_uninstall_gives_the_model_back_to_the_bit(kind: str, kernels: Kernels) -> None:
    model = tiny_model(kind).train()
    loss, gradients = loss_and_gradients(model)
    engaged = install(model, torch.float32)
    assert forwards(model) == sum(len(fused) for fused in engaged.fused.values())
    engaged.uninstall()
    engaged.uninstall()
    before = calls(kernels)
    found_loss, found = loss_and_gradients(model)
    assert calls(kernels) == before
    assert not forwards(model)
    assert torch.equal(found_loss, loss)
    assert all(torch.equal(found[name], gradients[name]) for name in gradients)


def test_models_of_one_kind_do_not_see_each_others_kernels(kernels: Kernels) -> None:
    from transformers.models.qwen2 import modeling_qwen2

    original = modeling_qwen2.apply_rotary_pos_emb
    first, second = tiny_model("qwen2"), tiny_model("qwen2")
    in_first = install(first, torch.float32)
    before = calls(kernels)
    loss_and_gradients(second)
    assert calls(kernels) == before
    assert modeling_qwen2.apply_rotary_pos_emb is original
    in_second = install(second, torch.float32)
    in_first.uninstall()
    before = calls(kernels)
    loss_and_gradients(first)
    assert calls(kernels) == before
    loss_and_gradients(second)
    assert calls(kernels)["rotary"] == before["rotary"] + 2
    in_second.uninstall()


class _Wrong(torch.autograd.Function):
    """Right forward, gradient off by 0.1 %."""

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        return y.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 1.001


WRONG: dict[str, dict[str, Any]] = {
    "RMSNorm": {
        "forward": {"rms_norm": lambda x, w, eps, *form: norm.reference(x, w, 2 * eps, *form)},
        "backward": {"rms_norm": lambda *args: _Wrong.apply(norm.reference(*args))},
    },
    "gated activation": {
        "forward": {"gated": lambda g, u, tanh: gate.reference(not tanh, g, u)},
        "backward": {"gated": lambda g, u, tanh: _Wrong.apply(gate.reference(tanh, g, u))},
    },
    "rotary embedding": {
        "forward": {"rotary": lambda q, k, cos, sin: rotate(q, k, cos, -sin)},
        "backward": {"rotary": lambda q, k, cos, sin: (rotate(q, k, cos, sin)[0], _Wrong.apply(rotate(q, k, cos, sin)[1]))},
    },
}  # fmt: skip


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("kind", list(WRONG))
def test_a_kernel_that_is_wrong_is_not_installed(kind: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, **WRONG[kind][where])
    model = tiny_model("llama")
    engaged = install(model, torch.float32)
    assert not engaged.fused[kind]
    assert all("it computes something else" in reason for reason in engaged.others[kind].values())
    assert all(fused for other, fused in engaged.fused.items() if other != kind)
    assert f"0 of {len(engaged.others[kind])} {kind}s" in engaged.lines()[0]
    assert any(line.startswith(f"{kind} without kernel") for line in engaged.lines())


def test_a_kernel_that_rounds_too_much_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def coarse(x: Tensor, w: Tensor, *form: Any) -> Tensor:
        y = norm.reference(x, w, *form)
        return y if y.dtype == torch.float32 else y.to(torch.float8_e4m3fn).to(y.dtype)

    put(monkeypatch, rms_norm=coarse)
    engaged = install(tiny_model("llama").bfloat16(), torch.bfloat16)
    assert all("rounding is larger" in reason for reason in engaged.others["RMSNorm"].values())
    assert len(engaged.others["RMSNorm"]) == 5


@pytest.mark.parametrize(("kind", "form"), [("qwen2", (0.0, True)), ("gemma2", (1.0, False)), ("olmo2", (0.0, False))])
def test_the_form_of_the_norm_is_seen(kind: str, form: tuple[float, bool], kernels: Kernels) -> None:
    engaged = install(tiny_model(kind).bfloat16(), torch.bfloat16)
    assert engaged.fused["RMSNorm"]
    assert {fused.form[1:] for fused in engaged.fused["RMSNorm"].values()} == {form}


class LlamaMLP(nn.Module):
    """Named and built as the real one, and something else."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 8)
        self.act_fn, self.what = nn.SiLU(), what
        self.dropout = nn.Dropout(0.5 if what == "drops out" else 0.0)

    def forward(self, x: Tensor) -> Tensor:
        if self.what == "another order":
            up = self.up_proj(x)
            return self.down_proj(self.act_fn(self.gate_proj(x)) * up)
        if self.what == "another input":
            return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x + 0))
        if self.what == "scales":
            return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x) * 0.5)
        if self.what == "scales its output":
            return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x)) * 2
        if self.what == "reads a weight":
            return self.down_proj(self.act_fn(x @ self.gate_proj.weight.t()) * self.up_proj(x))
        return self.down_proj(self.dropout(self.act_fn(self.gate_proj(x)) * self.up_proj(x)))


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("another order", "does not call its linears once each"), ("another input", "does not call its linears"),
        ("scales", "computes something else"), ("scales its output", "computes something else"),
        ("reads a weight", "cannot be compared with the kernel (AttributeError"), ("drops out", "computes something else"),
    ],
)  # fmt: skip
def test_a_name_proves_nothing(what: str, said: str, kernels: Kernels) -> None:
    engaged = install(nn.Sequential(LlamaMLP(what).eval()), torch.float32)
    (reason,) = engaged.others["gated activation"].values()
    assert said in reason
    assert not engaged.fused["gated activation"]
    assert install(nn.Sequential(LlamaMLP("as Llama's")), torch.float32).fused["gated activation"]


def test_the_random_state_stays(kernels: Kernels) -> None:
    state = torch.get_rng_state()
    install(nn.Sequential(LlamaMLP("drops out")), torch.float32)
    install(tiny_model_at_this_state(state), torch.float32)
    assert torch.equal(torch.get_rng_state(), state)


def tiny_model_at_this_state(state: Tensor) -> nn.Module:
    model = tiny_model("llama")
    torch.set_rng_state(state)
    return model


def test_partial_and_interleaved_rotary_embeddings_keep_their_own(kernels: Kernels) -> None:
    for kind, said in (("glm", "it rotates 4 of 8 dimensions"), ("cohere", "it computes something else")):
        engaged = install(tiny_model(kind), torch.float32)
        assert len(engaged.others["rotary embedding"]) == 2
        assert all(said in reason for reason in engaged.others["rotary embedding"].values())


def test_layer_norms_are_no_rms_norms(kernels: Kernels) -> None:
    engaged = install(nn.Sequential(nn.LayerNorm(16), nn.LayerNorm(16, bias=False)), torch.float32)
    assert engaged.lines() == []


def lora_with_kernels(kernels: Kernels, **lora: Any) -> tuple[Any, Any, Engaged]:
    from dynotune.model.lora import install as install_lora

    model = adapted_model("qwen2", **lora)
    fused = install_lora(model, torch.float32)
    return model, fused, install(model, torch.float32)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_lora_linears_of_one_input_stay_together(dropout: float, kernels: Kernels) -> None:
    model, fused, engaged = lora_with_kernels(kernels, lora_dropout=dropout)
    assert len(engaged.fused["gated activation"]) == 2
    engaged.uninstall()
    torch.manual_seed(3)
    loss, gradients = loss_and_gradients(model)
    engaged = install(model, torch.float32)
    torch.manual_seed(3)
    found_loss, found = loss_and_gradients(model)
    assert fused.copies.shared
    assert all(not shared.unclaimed for shared in fused.copies.shared)
    assert fused.calls_to_peft == 0
    assert gap(found_loss, loss) < 1e-6
    assert largest_gap(found, gradients) < 1e-5


@pytest.mark.parametrize("lora", [False, True])
def test_recomputed_layers_give_the_same_gradients(lora: bool, kernels: Kernels) -> None:
    model: Any = lora_with_kernels(kernels)[0] if lora else tiny_model("qwen3").train()
    if not lora:
        install(model, torch.float32)
    _, gradients = loss_and_gradients(model)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    before = calls(kernels)
    _, found = loss_and_gradients(model)
    assert calls(kernels)["gated"] == before["gated"] + 4  # twice each
    assert largest_gap(found, gradients) < 1e-6


def test_a_compiled_layer_is_one_graph_of_its_own_operations(kernels: Kernels) -> None:
    torch._dynamo.reset()
    model: Any = tiny_model("qwen3").train()
    _, gradients = loss_and_gradients(model)
    install(model, torch.float32)
    for layer in model.model.layers:
        layer.compile(backend="aot_eager", fullgraph=True)
    before = calls(kernels)
    _, found = loss_and_gradients(model)
    assert calls(kernels)["gated"] == before["gated"]
    assert calls(kernels)["rotary"] == before["rotary"]
    assert largest_gap(found, gradients) < 1e-5
    torch._dynamo.reset()


def test_what_the_kernel_was_not_proved_for_goes_to_the_own_forward_and_is_counted(kernels: Kernels) -> None:
    model: Any = tiny_model("llama")
    engaged = install(model, torch.float32)
    x = torch.randn(2, 3, 32)
    layer = model.model.layers[0]
    right = layer.input_layernorm(x)
    assert engaged.calls_to_own == 0
    assert torch.allclose(layer.input_layernorm(x.double()).float(), right, atol=1e-6)
    assert engaged.calls_to_own == 1
    model.double()
    model(input_ids=IDS)
    assert engaged.calls_to_own == 1 + 5 + 2 + 2


def test_a_hook_on_the_activation_sees_it_called(kernels: Kernels) -> None:
    model: Any = tiny_model("llama")
    install(model, torch.float32)
    seen: list[Any] = []
    handle = model.model.layers[0].mlp.act_fn.register_forward_hook(lambda *args: seen.append(args))
    model(input_ids=IDS)
    assert len(seen) == 1
    handle.remove()
    before = calls(kernels)["gated"]
    model(input_ids=IDS)
    assert calls(kernels)["gated"] == before + 2


def test_a_forward_that_someone_else_replaced_stays(kernels: Kernels) -> None:
    model: Any = tiny_model("llama")
    theirs = model.model.norm.forward
    model.model.norm.forward = theirs
    engaged = install(model, torch.float32)
    assert engaged.others["RMSNorm"] == {"model.norm": "its forward was replaced by someone else"}
    engaged.uninstall()
    assert model.model.norm.forward is theirs


def test_a_copy_of_the_model_is_its_own(kernels: Kernels) -> None:
    model: Any = tiny_model("llama").train()
    install(model, torch.float32)
    other: Any = copy.deepcopy(model)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    loss, gradients = loss_and_gradients(other)
    right, expected = loss_and_gradients(tiny_model("llama").train())
    assert gap(loss, right) < 1e-6
    assert largest_gap(gradients, expected) < 1e-5


def test_a_model_with_kernels_can_be_packed(kernels: Kernels) -> None:
    from dynotune.model.attention import why_not_packed

    model = tiny_model("qwen3")
    engaged = install(model, torch.float32)
    assert why_not_packed(model, longest=64) is None
    assert engaged.calls_to_own == 0
