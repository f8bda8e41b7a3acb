"""Promise: the head does the work that is needed and no more, in the precision of the plain path, once."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dynotune.model.attention.decoder import text_decoder
from dynotune.model.head import Head, find_head, linear
from dynotune.model.head.logit_map import LogitMap
from dynotune.model.head.rows import statistics
from dynotune.model.packed import PackedBatch
from tests.model.head.plain import VARIANTS, batch_of, labelled, objective, plain_loss
from tests.tiny import tiny_model

D, V = 24, 501
LENGTHS = (9, 1, 30, 12)


class Watch(TorchDispatchMode):
    """Counts matrix products and casts of the weight's shape, and keeps the largest float32 result."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.casts, self.largest_float32 = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.calls["product" if name in ("mm", "addmm", "addmm_") else name] += 1
        if isinstance(out, Tensor):
            if name == "_to_copy" and out.shape == (V, D):
                self.casts += 1
            if out.dtype is torch.float32:
                self.largest_float32 = max(self.largest_float32, out.numel())
        return out


def problem(
    trained: bool = False, precision: torch.dtype = torch.float32, seed: int = 0
) -> tuple[Any, Tensor, nn.Linear]:
    torch.manual_seed(seed)
    layer = nn.Linear(D, V, bias=False).to(precision)
    nn.init.normal_(layer.weight, std=0.7)
    layer.requires_grad_(trained)
    return labelled(LENGTHS, V, seed=seed), torch.randn(64, D).to(precision).requires_grad_(), layer


def head_of(layer: nn.Module, logits: LogitMap | None = None) -> Head:
    return Head(layer, logits or LogitMap(), V)


@pytest.mark.parametrize("trained", [False, True])
def test_two_products_frozen_three_trained_one_without_gradient(trained: bool) -> None:
    documents, hidden_TD, layer = problem(trained)
    batch, head = batch_of(documents, 64), head_of(layer)
    with Watch() as forward:
        loss, _ = head(hidden_TD, batch, objective())
    assert forward.calls["product"] == 2 + trained
    with Watch() as backward:
        loss.backward()
    assert backward.calls["product"] == 0
    with torch.no_grad(), Watch() as evaluation:
        again, sums = head(hidden_TD, batch, objective())
    assert evaluation.calls["product"] == 1
    assert not again.requires_grad
    assert not sums.requires_grad
    assert torch.equal(again, loss)


def test_only_the_head_trained_needs_no_gradient_of_the_hidden_states() -> None:
    documents, hidden_TD, layer = problem(trained=True)
    with Watch() as watch:
        loss, _ = head_of(layer)(hidden_TD.detach(), batch_of(documents, 64), objective())
    assert watch.calls["product"] == 2
    loss.backward()
    assert layer.weight.grad is not None


def test_rows_without_a_label_do_not_meet_the_head() -> None:
    documents, hidden_TD, layer = problem()
    batch = batch_of(documents, 64)
    loss, _ = head_of(layer)(hidden_TD, batch, objective())
    (gradient_TD,) = torch.autograd.grad(loss, hidden_TD)
    unlabelled = torch.ones(64, dtype=torch.bool).index_fill(0, batch.predictors_N, False)
    assert not gradient_TD[unlabelled].any()
    assert gradient_TD[~unlabelled].any(-1).all()
    with torch.no_grad():
        hidden_TD[unlabelled] = torch.nan
    assert torch.equal(head_of(layer)(hidden_TD, batch, objective())[0], loss)


def test_no_float32_logits_of_the_batch_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    from dynotune.model.head import rows

    monkeypatch.setattr(rows, "BLOCK_BYTES", 4 * 3 * V)  # three rows at a time, where there are a few thousand
    documents, hidden_TD, layer = problem(precision=torch.bfloat16)
    batch = batch_of(documents, 64)
    with Watch() as watch:
        head_of(layer)(hidden_TD, batch, objective())[0].backward()
    assert watch.largest_float32 <= 3 * V
    with Watch() as plain:  # negative control: the plain path makes them
        plain_loss(documents, hidden_TD, layer, objective())
    assert plain.largest_float32 > 10 * V


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("cap", [None, 3.0])
def test_working_precision_errs_at_most_half_as_much_again_as_the_plain_path(
    variant: dict[str, Any], trained: bool, cap: float | None
) -> None:
    """P2, for bfloat16 weights, over a few draws: a single one may be lucky on either side."""
    what, logits = objective(**variant), LogitMap(cap=cap)
    ours, plain = torch.zeros(3), torch.zeros(3)
    for seed in range(5):
        documents, hidden_TD, layer = problem(trained, torch.bfloat16, seed)
        wanted = [hidden_TD, layer.weight] if trained else [hidden_TD]
        loss_p, _ = plain_loss(documents, hidden_TD, lambda h, layer=layer: logits(layer(h)), what)
        loss_o, _ = head_of(layer, logits)(hidden_TD, batch_of(documents, 64), what)
        exact = hidden_TD.detach().float().requires_grad_(), layer.weight.detach().float().requires_grad_(trained)
        loss_e, _ = plain_loss(documents, exact[0], lambda h, w=exact[1]: logits(h @ w.t()), what)
        right = torch.autograd.grad(loss_e / 7, exact[: len(wanted)])
        for errors, loss in ((ours, loss_o), (plain, loss_p)):
            errors[0] += (loss - loss_e).abs().item()
            for i, gradient in enumerate(torch.autograd.grad(loss / 7, wanted)):
                errors[1 + i] += ((gradient.float() - right[i]).norm() / right[i].norm()).item()
    assert (ours <= 1.5 * plain + 1e-6).all(), (ours, plain)


@pytest.mark.parametrize("trained", [False, True])
def test_memory_that_held_nan_before_does_not_reach_a_gradient(trained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN of torch 2.13 reads behind the rows of a matrix with a stride where the CPU has AMX."""

    def held_nan(*shape: int, dtype: torch.dtype, **kwargs: Any) -> Tensor:
        return torch.full(shape, torch.nan if dtype.is_floating_point else 0, dtype=dtype, **kwargs)

    documents, hidden_TD, layer = problem(trained, torch.bfloat16)
    monkeypatch.setattr(linear.torch, "empty", held_nan)
    loss, _ = head_of(layer)(hidden_TD, batch_of(documents, 64), objective())
    loss.backward()
    assert hidden_TD.grad is not None
    assert hidden_TD.grad.isfinite().all()
    assert layer.weight.grad is None or layer.weight.grad.isfinite().all()


def test_master_weights_under_autocast_are_cast_once_and_get_a_float32_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents, hidden_TD, layer = problem(trained=True)
    monkeypatch.setattr(linear, "chunks", lambda n, *_: [(i, min(i + 5, n)) for i in range(0, n, 5)])
    with torch.autocast("cpu", torch.bfloat16):
        with Watch() as watch:
            loss, _ = head_of(layer)(hidden_TD, batch_of(documents, 64), objective())
        plain, _ = plain_loss(documents, hidden_TD, layer, objective())
    assert watch.casts == 1
    for got, right in zip(
        torch.autograd.grad(loss, [hidden_TD, layer.weight]),
        torch.autograd.grad(plain, [hidden_TD, layer.weight]),
        strict=True,
    ):
        assert got.dtype is torch.float32
        assert (got - right).norm() < 0.02 * right.norm()


@pytest.mark.parametrize("precision", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_hidden_states_of_any_precision_and_layout(precision: torch.dtype) -> None:
    documents, hidden_TD, layer = problem(precision=precision)
    batch, head = batch_of(documents, 64), head_of(layer)
    loss, _ = head(hidden_TD, batch, objective())
    assert loss.dtype is (torch.float64 if precision is torch.float64 else torch.float32)
    (gradient_TD,) = torch.autograd.grad(loss, hidden_TD)
    assert gradient_TD.dtype is precision
    strided = torch.empty(D, 64, dtype=precision).t().copy_(hidden_TD.detach()).requires_grad_()
    assert not strided.is_contiguous()
    again, _ = head(strided, batch, objective())
    assert torch.equal(again, loss)
    assert torch.equal(torch.autograd.grad(again, strided)[0], gradient_TD)


def test_a_second_backward_and_a_gradient_of_the_gradient_are_refused() -> None:
    documents, hidden_TD, layer = problem(trained=True)
    batch, head = batch_of(documents, 64), head_of(layer)
    loss, _ = head(hidden_TD, batch, objective())
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="a second time: its gradients were formed in the forward pass"):
        loss.backward()
    loss, _ = head(hidden_TD, batch, objective())
    (gradient_TD,) = torch.autograd.grad(loss**2, hidden_TD, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient_TD.sum().backward()


@pytest.mark.parametrize("trained", [False, True])
def test_no_label_token_is_a_loss_of_zero_with_gradients_of_zero(trained: bool) -> None:
    documents, hidden_TD, layer = problem(trained)
    nothing = batch_of([(ids, labels * 0 - 100) for ids, labels in documents], 64)
    loss, sums = head_of(layer)(hidden_TD, nothing, objective())
    assert float(loss.detach()) == 0
    assert sums.tolist() == [0, 0]
    loss.backward()
    assert hidden_TD.grad is not None
    assert not hidden_TD.grad.any()
    assert (layer.weight.grad is not None) == trained
    assert not trained or not layer.weight.grad.any()
    assert head_of(layer).token_losses(hidden_TD, nothing, objective()).shape == (0,)


def test_token_losses_are_each_tokens_own() -> None:
    documents, hidden_TD, layer = problem()
    batch = batch_of(documents, 64)
    losses_N = head_of(layer).token_losses(hidden_TD, batch, objective())
    assert not losses_N.requires_grad
    logps = layer(hidden_TD[batch.predictors_N]).log_softmax(-1)
    torch.testing.assert_close(losses_N, -logps[torch.arange(len(logps)), batch.targets_N].detach())
    torch.testing.assert_close(losses_N.sum(), head_of(layer)(hidden_TD, batch, objective())[0].detach())


def test_gradients_of_micro_batches_add_up_on_a_tied_weight() -> None:
    """Through the whole model, layers recomputed in the backward pass, as the loop runs it."""
    model: Any = tiny_model(tie_word_embeddings=True)
    model.gradient_checkpointing_enable()
    model.train()
    found = find_head(model, torch.tensor([4, 7, 300]))
    assert found.head is not None, found.why_not
    batches = [labelled([21], 352, seed=seed) for seed in (1, 2)]

    def backward(ours: bool) -> list[Tensor]:
        model.zero_grad()
        for documents in batches:
            ids = torch.from_numpy(documents[0][0]).long()
            if ours:
                hidden_TD = text_decoder(model)(input_ids=ids[None], use_cache=False).last_hidden_state[0]
                loss, _ = found.head(hidden_TD, batch_of(documents, 21), objective())  # type: ignore[misc]
            else:
                loss, _ = plain_loss(documents, ids, lambda rows: model(input_ids=rows[None]).logits[0], objective())
            (loss / 40).backward()
        return [p.grad.clone() for p in model.parameters()]

    for got, right in zip(backward(ours=True), backward(ours=False), strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-6)


def test_what_runs_is_said() -> None:
    _, _, layer = problem()
    assert head_of(layer).describe() == ["head on label tokens only, frozen: two products a chunk"]
    _, _, layer = problem(trained=True)
    assert "trained: three" in head_of(layer, LogitMap(cap=30.0)).describe()[0]
    by_sequence = head_of(layer).describe_sequences()[0]
    assert "four matrix products a chunk, three of them in the backward pass" in by_sequence
    assert "soft-capped at 30" in head_of(layer, LogitMap(cap=30.0)).describe()[0]
    layer.register_forward_hook(lambda module, args, output: None)
    assert "a Linear of torch: its own forward and backward" in head_of(layer).describe()[0]


def test_each_row_is_a_predictor_at_most_once() -> None:
    """What the head relies on where it puts gradients into their places."""
    batch: PackedBatch = batch_of(labelled(LENGTHS, V, share=1.0), 64)
    assert len(batch.predictors_N.unique()) == len(batch.predictors_N)
    assert statistics(3, torch.zeros(1)).shape == (3, 3)
