"""Promise: replayed layers give the hidden states and the sums of gradients that launched ones give, whatever stands in
`.grad` before; a replay that does otherwise is not used, and what is launched is said with its reason.

Graphs of CUDA cannot be captured here: `Launched` stands in for them, with their buffers and their sums.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook

from dynotune.model.attention import hidden_states, packed_attention, text_decoder
from dynotune.model.lora import install as install_lora
from dynotune.model.step_graphs import Launched, StepGraphs
from dynotune.model.step_graphs import graphs as graphs_module
from tests.model.compiled.steps import batch_of, families_of, model_of

TOKENS = 96


def trained(model: Any) -> list[Tensor]:
    return [p for p in text_decoder(model).parameters() if p.requires_grad]


def loss_of(hidden_TD: Tensor) -> Tensor:
    weights = torch.arange(hidden_TD.numel(), dtype=hidden_TD.dtype).reshape(hidden_TD.shape).cos()
    return (hidden_TD * weights).sum()


def the_same(found: Sequence[Tensor], right: Sequence[Tensor]) -> None:
    """Up to the order in which float32 values are summed."""
    largest = max(float(other.norm()) for other in right)
    for one, other in zip(found, right, strict=True):
        assert float((one - other).norm()) <= 1e-5 * float(other.norm()) + 1e-6 * largest


def gradients_of(model: Any, batches: Sequence[Any], layers: Any) -> list[Tensor]:
    """Sums over `batches`; they stay in `.grad`."""
    for batch in batches:
        loss_of(layers(model, batch)).backward()
    return [p.grad.clone() for p in trained(model) if p.grad is not None]


@pytest.mark.parametrize("adapter", [False, True])
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_sums_of_several_micro_batches_are_those_of_launched_ones(kind: str, adapter: bool) -> None:
    model = model_of(kind, adapter)
    if adapter:
        install_lora(model, torch.float32)
    batches = [batch_of([30, 20, 9], TOKENS, 1), batch_of([60], TOKENS, 2), batch_of([5] * 7, TOKENS, 3)]
    with packed_attention(model, "reference"):
        right = gradients_of(model, batches, hidden_states)
        model.zero_grad(set_to_none=True)
        graphs = StepGraphs(model, Launched)
        for _ in range(2):  # the second step finds sums of the first in its buffers
            found = gradients_of(model, batches, graphs.hidden_states)
            the_same(found, right)
            model.zero_grad(set_to_none=True)
    assert graphs.replayed == {"forward": 6, "backward": 6}
    assert graphs.launched == 0
    assert len(graphs.shapes) == 1, "boundaries and longest document are padded to one shape"
    assert max(graphs.off) <= 1e-6


def test_micro_batches_replayed_and_launched_in_one_step_add_up() -> None:
    model = model_of("llama")
    small, large = batch_of([30, 20], TOKENS, 1), batch_of([100, 60], 192, 2)
    with packed_attention(model, "reference"):
        for order in ([small, large], [large, small], [small, large, small]):
            model.zero_grad(set_to_none=True)
            right = gradients_of(model, order, hidden_states)
            model.zero_grad(set_to_none=True)
            graphs = StepGraphs(model, Launched, most_tokens=TOKENS)
            the_same(gradients_of(model, order, graphs.hidden_states), right)
            assert graphs.replayed["forward"] == sum(one is small for one in order)
            assert graphs.launched == sum(one is large for one in order)
            assert "above 96 tokens" in next(iter(graphs.why_not.values()))


@settings(max_examples=10, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=4), min_size=1, max_size=4),
    before=st.booleans(),
)
def test_whatever_stands_in_grad_before_stays_in_the_sum(lengths: list[list[int]], before: bool) -> None:
    model = model_of("llama")
    batches = [batch_of(one, TOKENS, i) for i, one in enumerate(lengths)]
    with packed_attention(model, "reference"):
        right = gradients_of(model, batches, hidden_states)
        for p in trained(model):
            p.grad = torch.ones_like(p) if before else None
        graphs = StepGraphs(model, Launched)
        found = gradients_of(model, batches, graphs.hidden_states)
    the_same(found, [one + before for one in right])


def test_weights_that_were_updated_in_place_are_those_that_a_replay_computes_with() -> None:
    model = model_of("llama", adapter=True)
    install_lora(model, torch.float32)
    batch = batch_of([30, 20], TOKENS)
    with packed_attention(model, "reference"):
        graphs = StepGraphs(model, Launched)
        first = gradients_of(model, [batch], graphs.hidden_states)
        with torch.no_grad():
            for p in trained(model):
                p.mul_(1.1)
        model.zero_grad(set_to_none=True)
        found = gradients_of(model, [batch], graphs.hidden_states)
        model.zero_grad(set_to_none=True)
        right = gradients_of(model, [batch], hidden_states)
    the_same(found, right)
    assert any(not torch.allclose(a, b) for a, b in zip(first, right, strict=True)), "control: it was an update"
    assert len(graphs.off) == 1


def test_weights_that_lie_elsewhere_are_captured_again() -> None:
    model = model_of("llama")
    batch = batch_of([30, 20], TOKENS)
    with packed_attention(model, "reference"):
        graphs = StepGraphs(model, Launched)
        gradients_of(model, [batch], graphs.hidden_states)
        for p in trained(model):
            p.data = p.data.clone()
        model.zero_grad(set_to_none=True)
        gradients_of(model, [batch], graphs.hidden_states)
    assert len(graphs.off) == 2


def test_frozen_weights_that_lie_elsewhere_are_captured_again() -> None:
    model = model_of("llama", adapter=True)
    batch = batch_of([30, 20], TOKENS)
    with packed_attention(model, "reference"):
        graphs = StepGraphs(model, Launched)
        gradients_of(model, [batch], graphs.hidden_states)
        for p in text_decoder(model).parameters():
            if not p.requires_grad:
                p.data = p.data.clone()
        gradients_of(model, [batch], graphs.hidden_states)
    assert len(graphs.off) == 2


def test_weights_that_keep_moving_are_launched_in_the_end() -> None:
    model = model_of("llama")
    batch = batch_of([30, 20], TOKENS)
    with packed_attention(model, "reference"):
        graphs = StepGraphs(model, Launched)
        for _ in range(8):
            gradients_of(model, [batch], graphs.hidden_states)
            trained(model)[0].data = trained(model)[0].data.clone()
    assert len(graphs.off) == graphs_module.MOST_MOVES + 1
    assert graphs.failed == ["weights or buffers of the layers keep moving"]


def test_weights_that_are_trained_from_now_on_get_gradients_and_frozen_ones_none() -> None:
    model = model_of("llama")
    batch = batch_of([30, 20], TOKENS)
    later, sooner = [p for p in text_decoder(model).parameters() if p.dim() == 2][1:3]
    later.requires_grad_(False)
    with packed_attention(model, "reference"):
        graphs = StepGraphs(model, Launched)
        gradients_of(model, [batch], graphs.hidden_states)
        assert later.grad is None
        later.requires_grad_(True)
        sooner.requires_grad_(False)
        model.zero_grad(set_to_none=True)
        found = gradients_of(model, [batch], graphs.hidden_states)
        assert sooner.grad is None
        model.zero_grad(set_to_none=True)
        the_same(found, gradients_of(model, [batch], hidden_states))


def test_hooks_are_called_and_what_has_none_is_replayed_again() -> None:
    model = model_of("llama")
    batch = batch_of([30, 20], TOKENS)
    heard: list[str] = []
    with packed_attention(model, "reference"):
        graphs = StepGraphs(model, Launched)
        gradients_of(model, [batch], graphs.hidden_states)
        for hook in (
            lambda: trained(model)[0].register_post_accumulate_grad_hook(lambda p: heard.append("gradient")),
            lambda: next(text_decoder(model).children()).register_forward_hook(lambda *_: heard.append("module")),
        ):
            handle = hook()
            gradients_of(model, [batch], graphs.hidden_states)
            handle.remove()
            gradients_of(model, [batch], graphs.hidden_states)
    assert heard == ["gradient", "module"]
    assert (graphs.replayed["forward"], graphs.launched, graphs.watched) == (3, 2, 2)


@pytest.mark.parametrize("where", ["a layer", "all modules"])
def test_a_hook_that_was_there_before_is_called_each_time(where: str) -> None:
    model = model_of("llama", adapter=True)
    install_lora(model, torch.float32)  # whose own hooks are no obstacle
    batch, heard = batch_of([30, 20], TOKENS), []

    def hears(module: Any, args: Any, out: Any) -> None:
        heard.append(module)

    one = next(text_decoder(model).children())
    handle = one.register_forward_hook(hears) if where == "a layer" else register_module_forward_hook(hears)
    with packed_attention(model, "reference"):
        graphs = StepGraphs(model, Launched)
        for _ in range(3):
            gradients_of(model, [batch], graphs.hidden_states)
        handle.remove()
        assert heard.count(one) == 3
        gradients_of(model, [batch], graphs.hidden_states)
    assert (graphs.replayed["forward"], graphs.watched) == (1, 3)


def test_forgotten_graphs_leave_the_sums_that_they_made() -> None:
    model = model_of("llama")
    batches = [batch_of([30, 20], TOKENS), batch_of([40], TOKENS)]
    with packed_attention(model, "reference"):
        right = gradients_of(model, batches, hidden_states)
        model.zero_grad(set_to_none=True)
        graphs = StepGraphs(model, Launched)
        gradients_of(model, batches[:1], graphs.hidden_states)
        graphs.forget()
        assert not graphs.shapes
        the_same(gradients_of(model, batches[1:], graphs.hidden_states), right)


class KeepsTheFirst(Launched):
    """Computes with the tokens that it was made with."""

    def forward(self) -> None:
        self.inputs.ids_T.copy_(self._made_with)
        super().forward()

    def __init__(self, run: Any, inputs: Any, *more: Any) -> None:
        self._made_with = inputs.ids_T.clone()
        super().__init__(run, inputs, *more)


class ForgetsOne(Launched):
    """Leaves one weight's gradient out."""

    def backward(self) -> None:
        before = self.sums[3].clone()
        super().backward()
        self.sums[3].copy_(before)


class AddsTwice(Launched):
    """The second replay still has what the first left: sums are not added to, but handed over and kept."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.own = [torch.zeros_like(total) for total in self.sums]

    def backward(self) -> None:
        found = torch.autograd.grad(self._hidden_TD, self.parameters, self.gradient_TD)
        torch._foreach_add_(self.own, list(found))
        torch._foreach_add_(list(self.sums), self.own)


class Zeros(Launched):
    """Gives zeros, and adds nothing."""

    def forward(self) -> None:
        super().forward()
        self.hidden_TD.zero_()

    def backward(self) -> None:
        pass


def test_a_pass_that_is_not_finite_proves_nothing_and_the_next_one_is_compared() -> None:
    model = model_of("llama")
    bad, good = batch_of([30, 21], TOKENS, 1), batch_of([30, 21], TOKENS, 2)
    only_bad = next(int(i) for i in bad.ids_T if i not in good.ids_T)
    with torch.no_grad():
        model.get_input_embeddings().weight[only_bad] = torch.inf
    with packed_attention(model, "reference"):
        graphs = StepGraphs(model, Zeros)
        gradients_of(model, [bad], graphs.hidden_states)
        assert not graphs.shapes
        assert not graphs.why_not, "it may be the micro-batch"
        gradients_of(model, [good], graphs.hidden_states)
        assert graphs.failed, "control: Zeros is a liar"
        model.zero_grad(set_to_none=True)
        honest = StepGraphs(model, Launched)
        gradients_of(model, [bad], honest.hidden_states)
        model.zero_grad(set_to_none=True)
        found = gradients_of(model, [good], honest.hidden_states)
        model.zero_grad(set_to_none=True)
        the_same(found, gradients_of(model, [good], hidden_states))
    assert honest.replayed["forward"] == 1


class ForgetsA(Launched):
    """Leaves the gradients of every A out."""

    def backward(self) -> None:
        before = [total.clone() for total in self.sums]
        super().backward()
        for total, was in zip(self.sums, before, strict=True):
            if total.shape[0] == 5:  # A is [r, inputs]
                total.copy_(was)


@pytest.mark.parametrize("liar", [None, ForgetsA])
def test_adapters_are_compared_where_their_b_is_zero(liar: type[Launched] | None) -> None:
    model = model_of("llama", adapter=True)
    for name, p in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.zeros_(p)
    with packed_attention(model, "reference"):
        graphs = StepGraphs(model, liar or Launched)
        gradients_of(model, [batch_of([30, 21], TOKENS)], graphs.hidden_states)
    assert bool(graphs.failed) == (liar is not None)
    assert all(not p.count_nonzero() for name, p in model.named_parameters() if "lora_B" in name), "zeros again"


@pytest.mark.parametrize(("replay", "used"), [(1.0033, True), (1.01, False)])
def test_a_replay_in_doubt_is_held_against_several_launched_passes(
    replay: float, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of kernels that add up in any order: one draw of what two launched passes are apart may come out small."""

    class Off(Launched):
        def __init__(self, factors: list[float], *args: Any) -> None:
            super().__init__(*args)
            self.factors = factors

        def backward(self) -> None:
            super().backward()
            torch._foreach_mul_(list(self.sums), self.factors.pop(0) if len(self.factors) > 1 else self.factors[0])

    monkeypatch.setattr(
        "dynotune.model.step_graphs.graphs.Launched", lambda *args: Off([1.0, 1.0016, 1.001, 1.0018, 1.0012], *args)
    )
    model = model_of("llama")
    with packed_attention(model, "reference"):
        graphs = StepGraphs(model, lambda *args: Off([replay], *args))
        gradients_of(model, [batch_of([30, 21], TOKENS)], graphs.hidden_states)
    assert bool(graphs.shapes) == used, graphs.failed


@pytest.mark.parametrize("liar", [KeepsTheFirst, ForgetsOne, AddsTwice])
def test_a_replay_that_does_otherwise_is_not_used(liar: type[Launched]) -> None:
    model = model_of("llama")
    batch = batch_of([30, 21], TOKENS)
    with packed_attention(model, "reference"):
        right = gradients_of(model, [batch, batch], hidden_states)
        model.zero_grad(set_to_none=True)
        graphs = StepGraphs(model, liar)
        the_same(gradients_of(model, [batch, batch], graphs.hidden_states), right)
    assert not graphs.shapes
    assert graphs.launched == 2
    (why,) = graphs.why_not.values()
    assert why.startswith("a replay is off by")
    assert graphs.failed == [why]
    assert not graphs._sums, "nothing is kept where nothing is replayed"


def test_what_cannot_be_captured_is_launched_and_said() -> None:
    def cannot(*args: Any) -> Launched:
        raise torch.AcceleratorError("operation not permitted when stream is capturing")

    model = model_of("llama")
    batch = batch_of([30, 21], TOKENS)
    with packed_attention(model, "reference"):
        right = gradients_of(model, [batch], hidden_states)
        model.zero_grad(set_to_none=True)
        graphs = StepGraphs(model, cannot)
        the_same(gradients_of(model, [batch], graphs.hidden_states), right)
    (why,) = graphs.why_not.values()
    assert "stream is capturing" in why


def test_memory_that_runs_out_in_the_middle_loses_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    batches = [batch_of([30, 21], TOKENS), batch_of([100], 128)]

    def runs_out(found: Any, right: Any) -> float:
        raise torch.OutOfMemoryError

    with packed_attention(model, "reference"):
        right = gradients_of(model, batches, hidden_states)
        model.zero_grad(set_to_none=True)
        graphs = StepGraphs(model, Launched)
        gradients_of(model, batches[:1], graphs.hidden_states)
        monkeypatch.setattr(graphs_module, "_apart", runs_out)
        the_same(gradients_of(model, batches[1:], graphs.hidden_states), right)
    (why,) = graphs.why_not.values()
    assert why == "memory ran out when its graph was made"


def test_evaluation_and_pairs_are_launched() -> None:
    model = model_of("llama")
    with packed_attention(model, "reference"):
        graphs = StepGraphs(model, Launched)
        with torch.no_grad():
            graphs.hidden_states(model, batch_of([30], TOKENS))
        model.eval()
        graphs.hidden_states(model, batch_of([30], TOKENS))
        model.train()
        graphs.hidden_states(model, families_of([30], TOKENS))
    assert not graphs.shapes
    assert graphs.launched == 1, "the pairs; an evaluation trains nothing"


def test_a_backward_behind_another_forward_is_an_error() -> None:
    model = model_of("llama")
    with packed_attention(model, "reference"):
        graphs = StepGraphs(model, Launched)
        first = graphs.hidden_states(model, batch_of([30], TOKENS))
        graphs.hidden_states(model, batch_of([40], TOKENS))
        with pytest.raises(RuntimeError, match="another micro-batch"):
            loss_of(first).backward()


def test_making_a_graph_draws_nothing() -> None:
    model = model_of("llama")
    with packed_attention(model, "reference"):
        before = torch.random.get_rng_state()
        StepGraphs(model, Launched).hidden_states(model, batch_of([30], TOKENS))
    assert torch.equal(torch.random.get_rng_state(), before)
