"""Promise: sequences' log-probabilities and every gradient are those of plain logits, at the work that is needed."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dynotune.model.head import Head, SequenceScores, by_sequence, linear, sequence_scores, sequences
from dynotune.model.head import module as module_walk
from dynotune.model.head.logit_map import LogitMap
from dynotune.model.head.scatter import summed
from tests.model.head.test_head import Watch

D, V, T = 24, 501, 64
MAPS = [LogitMap(), LogitMap(cap=2.0), LogitMap(scale=0.25), LogitMap(scale=3.0, cap=4.0, before=0.5)]


@dataclass
class Places:
    """Label tokens of a made-up micro-batch."""

    predictors_N: Tensor
    targets_N: Tensor
    sequences_N: Tensor
    count: int
    tails_N: Tensor | None = None


def places(n: int = 40, count: int = 6, seed: int = 0, tails: bool = False, vocabulary: int = V) -> Places:
    """Repeated predictors, sequences in any order, one of them without a label token."""
    random = torch.Generator().manual_seed(seed)
    return Places(
        torch.randint(0, T, (n,), generator=random),
        torch.randint(0, vocabulary, (n,), generator=random),
        torch.randint(0, max(1, count - 1), (n,), generator=random),
        count,
        torch.randint(0, 2, (n,), generator=random) if tails else None,
    )


def hidden_and_layer(
    trained: bool = False, precision: torch.dtype = torch.float32, seed: int = 0, bias: bool = False
) -> tuple[Tensor, nn.Linear]:
    torch.manual_seed(seed)
    layer = nn.Linear(D, V, bias=bias)
    nn.init.normal_(layer.weight, std=0.7)
    layer.to(precision).requires_grad_(trained)
    return torch.randn(T, D).to(precision).requires_grad_(), layer


def ours(
    layer: nn.Module, hidden_TD: Tensor, at: Places, logits: LogitMap | None = None, **more: Any
) -> SequenceScores:
    return sequence_scores(
        Head(layer, logits or LogitMap(), V),
        hidden_TD,
        at.predictors_N,
        at.targets_N,
        at.sequences_N,
        at.count,
        tails_N=at.tails_N,
        **more,
    )


def plain(layer: Any, hidden_TD: Tensor, at: Places, logits: LogitMap | None = None) -> SequenceScores:
    """All rows of logits at once, by autograd."""
    logits = logits or LogitMap()
    x_TV = logits(layer(hidden_TD * logits.before))
    x_NV = x_TV.to(torch.promote_types(x_TV.dtype, torch.float32))[at.predictors_N]
    logps_NV = x_NV.log_softmax(-1)
    logps_N = logps_NV.gather(1, at.targets_N[:, None])[:, 0]

    def by_sequence_of(values_N: Tensor) -> Tensor:
        return torch.stack([values_N[at.sequences_N == q].sum() for q in range(at.count)])

    return SequenceScores(
        by_sequence_of(logps_N),
        by_sequence_of((x_NV.argmax(-1) == at.targets_N).to(logps_N.dtype)),
        by_sequence_of(-(logps_NV.exp() * logps_NV).sum(-1)),
        None if at.tails_N is None else by_sequence_of(logps_N * at.tails_N),
        by_sequence_of(x_NV.mean(-1)),
        by_sequence_of(logps_N - (2 * logps_NV).logsumexp(-1)),
    )


def objective(logps_Q: Tensor, tails_Q: Tensor | None = None) -> Tensor:
    """Pairs of sequences, bent: every sequence gets a coefficient of its own, and its tail another one."""
    if tails_Q is not None:
        logps_Q = logps_Q - 0.7 * tails_Q
    return -torch.nn.functional.logsigmoid(0.1 * (logps_Q[0::2] - logps_Q[1::2])).mean()


def gradients(loss: Tensor, *tensors: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, [t for t in tensors if t.requires_grad]))


@pytest.mark.parametrize("logits", MAPS, ids=str)
@pytest.mark.parametrize("tails", [False, True])
@pytest.mark.parametrize(("trained", "bias"), [(False, False), (False, True), (True, False), (True, True)])
def test_values_and_gradients_are_log_softmaxs_in_float64(
    monkeypatch: pytest.MonkeyPatch, trained: bool, bias: bool, tails: bool, logits: LogitMap
) -> None:
    monkeypatch.setattr(linear, "chunks", lambda n, *_: [(i, min(i + 7, n)) for i in range(0, n, 7)])
    for precision, close in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        hidden_TD, layer = hidden_and_layer(trained, precision, bias=bias)
        at = places(tails=tails)
        exact = nn.Linear(D, V, bias=bias).double()
        exact.load_state_dict(layer.state_dict())
        exact.requires_grad_(trained)
        exact_TD = hidden_TD.detach().double().requires_grad_()
        right = plain(exact, exact_TD, at, logits)
        got = ours(layer, hidden_TD, at, logits, mean_logits=True, aligned_logps=True)
        for name in SequenceScores.__slots__:
            value, expected = getattr(got, name), getattr(right, name)
            if name == "tails_Q" and not tails:
                assert value is None
                continue
            assert value.dtype is precision
            assert value.shape == (at.count,)
            torch.testing.assert_close(value, expected.to(precision), rtol=close, atol=close, msg=name)
        assert not float(got.logps_Q[-1].detach())  # a sequence without a label token
        differentiable = {n for n in SequenceScores.__slots__ if getattr(getattr(got, n), "requires_grad", False)}
        assert differentiable == ({"logps_Q", "tails_Q"} if tails else {"logps_Q"})
        expected_gradients = gradients(objective(right.logps_Q, right.tails_Q), exact_TD, *exact.parameters())
        for one, expected in zip(
            gradients(objective(got.logps_Q, got.tails_Q), hidden_TD, *layer.parameters()),
            expected_gradients,
            strict=True,
        ):
            assert one.dtype is precision
            assert (one - expected).norm() <= close * expected.norm()


@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 70), st.booleans(), st.booleans(), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_any_labels_and_chunks(n: int, pairs: int, chunk: int, trained: bool, tails: bool, seed: int) -> None:
    at = places(n, 2 * pairs, seed, tails)
    hidden_TD, layer = hidden_and_layer(trained, torch.float64, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "chunks", lambda n, *_: [(i, min(i + chunk, n)) for i in range(0, n, chunk)])
        got = ours(layer, hidden_TD, at)
        found = gradients(objective(got.logps_Q, got.tails_Q), hidden_TD, layer.weight)
    right = plain(layer, hidden_TD, at)
    torch.testing.assert_close(got.logps_Q, right.logps_Q, rtol=1e-10, atol=1e-10)
    for one, expected in zip(
        found, gradients(objective(right.logps_Q, right.tails_Q), hidden_TD, layer.weight), strict=True
    ):
        torch.testing.assert_close(one, expected, rtol=1e-9, atol=1e-12)


def test_a_repeated_predictor_gets_the_gradients_of_all_its_sequences() -> None:
    """The prompt's last token predicts the first of the chosen and of the rejected answer. And a negative control."""
    hidden_TD, layer = hidden_and_layer()
    both = Places(torch.tensor([3, 3, 4]), torch.tensor([7, 9, 7]), torch.tensor([0, 1, 1]), 2)
    (got,) = gradients(objective(ours(layer, hidden_TD, both).logps_Q), hidden_TD)
    (right,) = gradients(objective(plain(layer, hidden_TD, both).logps_Q), hidden_TD)
    torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            by_sequence,
            "summed",
            lambda rows, places, count: rows.new_zeros(count, D).index_copy_(0, places, rows),
        )
        (lost,) = gradients(objective(ours(layer, hidden_TD, both).logps_Q), hidden_TD)
    assert (lost - right).norm() > 0.1 * right.norm()
    torch.testing.assert_close(lost[4], right[4], rtol=1e-4, atol=1e-7)


def test_a_label_of_another_sequence_would_show() -> None:
    """Negative control of the comparisons above."""
    hidden_TD, layer = hidden_and_layer()
    at = places()
    right = ours(layer, hidden_TD, at).logps_Q
    at.sequences_N = at.sequences_N.flip(0)
    assert (ours(layer, hidden_TD, at).logps_Q - right).abs().max() > 0.1


@pytest.mark.parametrize("trained", [False, True])
def test_products(monkeypatch: pytest.MonkeyPatch, trained: bool) -> None:
    """Frozen: two a chunk, all in the forward pass. Trained: one, then three. Without gradients: one."""
    monkeypatch.setattr(linear, "chunks", lambda n, *_: [(0, 20), (20, n)])
    hidden_TD, layer = hidden_and_layer(trained)
    at = places()
    with Watch() as forward:
        logps_Q = ours(layer, hidden_TD, at, mean_logits=True, aligned_logps=True).logps_Q
    assert forward.calls["product"] == 2 * (1 if trained else 2)
    with Watch() as backward:
        objective(logps_Q).backward()
    assert backward.calls["product"] == (2 * 3 if trained else 0)
    with torch.no_grad(), Watch() as evaluation:
        again_Q = ours(layer, hidden_TD, at).logps_Q
    assert evaluation.calls["product"] == 2
    assert not again_Q.requires_grad
    assert torch.equal(again_Q, logps_Q.detach())


def test_only_the_head_trained_needs_no_gradient_of_the_hidden_states() -> None:
    hidden_TD, layer = hidden_and_layer(trained=True)
    logps_Q = ours(layer, hidden_TD.detach(), places()).logps_Q
    with Watch() as watch:
        logps_Q.sum().backward()
    assert watch.calls["product"] == 2
    assert layer.weight.grad is not None


@pytest.mark.parametrize("trained", [False, True])
def test_no_float32_logits_of_the_batch_ever(monkeypatch: pytest.MonkeyPatch, trained: bool) -> None:
    from dynotune.model.head import observed, rows

    for module in (rows, observed):
        monkeypatch.setattr(module, "BLOCK_BYTES", 4 * 3 * V)
    monkeypatch.setattr(linear, "chunks", lambda n, *_: [(i, min(i + 5, n)) for i in range(0, n, 5)])
    hidden_TD, layer = hidden_and_layer(trained, torch.bfloat16)
    with Watch() as watch:
        objective(
            ours(layer, hidden_TD, places(), LogitMap(cap=9.0), mean_logits=True, aligned_logps=True).logps_Q
        ).backward()
    assert watch.largest_float32 <= (D * V if trained else 3 * V)  # the weight's own gradient
    with Watch() as negative_control:
        plain(layer, hidden_TD, places())
    assert negative_control.largest_float32 >= 40 * V


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("cap", [None, 3.0])
def test_working_precision_errs_at_most_half_as_much_again_as_the_plain_path(trained: bool, cap: float | None) -> None:
    """P2, for bfloat16 weights, over a few draws."""
    logits, got, usual = LogitMap(cap=cap), torch.zeros(3), torch.zeros(3)
    for seed in range(6):
        hidden_TD, layer = hidden_and_layer(trained, torch.bfloat16, seed)
        at = places(seed=seed)
        exact = nn.Linear(D, V, bias=False)
        exact.load_state_dict({"weight": layer.weight.float()})
        exact.requires_grad_(trained)
        exact_TD = hidden_TD.detach().float().requires_grad_()
        right_Q = plain(exact, exact_TD, at, logits).logps_Q
        right = gradients(objective(right_Q), exact_TD, exact.weight)
        for errors, logps_Q in (
            (got, ours(layer, hidden_TD, at, logits).logps_Q),
            (usual, plain(layer, hidden_TD, at, logits).logps_Q),
        ):
            errors[0] += (logps_Q - right_Q).norm().item()
            for i, one in enumerate(gradients(objective(logps_Q), hidden_TD, layer.weight)):
                errors[1 + i] += ((one.float() - right[i]).norm() / right[i].norm()).item()
    assert (got <= 1.5 * usual + 1e-6).all(), (got, usual)
    assert got[1] > 0


@pytest.mark.parametrize("trained", [False, True])
def test_autocast_of_the_forward_pass_holds_in_the_backward_pass(trained: bool) -> None:
    """Float32 masters and hidden states, multiplied in bfloat16 both times."""
    hidden_TD, layer = hidden_and_layer(trained)
    with torch.autocast("cpu", torch.bfloat16):
        loss = objective(ours(layer, hidden_TD, places()).logps_Q)
        right = objective(plain(layer, hidden_TD, places()).logps_Q)
    seen: list[torch.dtype] = []
    walk = linear.compute_precision
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "compute_precision", lambda weight: seen.append(walk(weight)) or seen[-1])
        got = gradients(loss, hidden_TD, layer.weight)
    assert seen == ([torch.bfloat16] if trained else [])
    for one, expected in zip(got, gradients(right, hidden_TD, layer.weight), strict=True):
        assert one.dtype is torch.float32
        assert (one - expected).norm() < 0.02 * expected.norm()


class Adapted(nn.Module):
    """A head that is not a plain linear layer: with a low-rank part, and dropout before it."""

    def __init__(self, trained: bool, dropout: float) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.base = nn.Linear(D, V, bias=False).requires_grad_(False)
        self.down, self.up = nn.Linear(D, 4, bias=False), nn.Linear(4, V, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.requires_grad_(trained)
        self.base.requires_grad_(False)

    def forward(self, rows: Tensor) -> Tensor:
        result: Tensor = self.base(rows) + self.up(self.down(self.dropout(rows)))
        return result


@pytest.mark.parametrize("logits", MAPS, ids=str)
@pytest.mark.parametrize("trained", [False, True])
def test_a_head_with_an_adapter(monkeypatch: pytest.MonkeyPatch, trained: bool, logits: LogitMap) -> None:
    monkeypatch.setattr(module_walk, "chunks", lambda n, *_: [(i, min(i + 7, n)) for i in range(0, n, 7)])
    module = Adapted(trained, dropout=0.0)
    hidden_TD, _ = hidden_and_layer()
    for at in (places(), places(tails=True), places(0)):
        got, right = ours(module, hidden_TD, at, logits, mean_logits=True), plain(module, hidden_TD, at, logits)
        torch.testing.assert_close(got.logps_Q, right.logps_Q, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(got.mean_logits_Q, right.mean_logits_Q, rtol=1e-5, atol=1e-5)
        for one, expected in zip(
            gradients(objective(got.logps_Q, got.tails_Q), hidden_TD, *module.parameters()),
            gradients(objective(right.logps_Q, right.tails_Q), hidden_TD, *module.parameters()),
            strict=True,
        ):
            torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-6)


def test_dropout_in_the_head_is_the_same_in_both_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    module, at = Adapted(trained=True, dropout=0.5), places()
    hidden_TD, _ = hidden_and_layer()

    def found() -> list[Tensor]:
        torch.manual_seed(5)
        logps_Q = ours(module, hidden_TD, at).logps_Q
        torch.rand(3)  # other things draw between the passes
        return [logps_Q.detach(), *gradients(objective(logps_Q), hidden_TD, *module.parameters())]

    # By plain operations, with the numbers that the first pass draws.
    torch.manual_seed(5)
    rows_ND = hidden_TD[at.predictors_N]
    x_NV = module(rows_ND)
    logps_N = x_NV.log_softmax(-1).gather(1, at.targets_N[:, None])[:, 0]
    right_Q = torch.zeros(at.count).index_add(0, at.sequences_N, logps_N)
    right = [right_Q.detach(), *gradients(objective(right_Q), hidden_TD, *module.parameters())]
    for one, expected in zip(found(), right, strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-6)
    loss = objective(ours(module, hidden_TD, at).logps_Q)
    before = torch.get_rng_state()
    loss.backward()
    assert torch.equal(torch.get_rng_state(), before)
    monkeypatch.setattr("dynotune.model.head.replay._draws", lambda module: False)  # negative control
    assert (found()[1] - right[1]).norm() > 0.05 * right[1].norm()


@pytest.mark.parametrize("trained", [False, True])
def test_a_second_backward_and_a_changed_weight_are_refused(trained: bool) -> None:
    hidden_TD, layer = hidden_and_layer(trained)
    loss = objective(ours(layer, hidden_TD, places()).logps_Q)
    loss.backward(retain_graph=True)
    if not trained:
        with pytest.raises(RuntimeError, match="a second time: what it needs was given away"):
            loss.backward()
        return
    loss = objective(ours(layer, hidden_TD, places()).logps_Q)
    with torch.no_grad():
        layer.weight += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_it_is_bitwise_the_same_again_and_by_no_atomic_sum() -> None:
    hidden_TD, layer = hidden_and_layer(precision=torch.bfloat16)
    at = places(60, 4)
    first, second = (ours(layer, hidden_TD, at).logps_Q for _ in range(2))
    assert torch.equal(first, second)
    for one, other in zip(gradients(objective(first), hidden_TD), gradients(objective(second), hidden_TD), strict=True):
        assert torch.equal(one, other)


@given(st.lists(st.integers(0, 4), max_size=30), st.booleans())
@settings(max_examples=50, deadline=None)
def test_rows_are_added_where_they_belong_on_either_kind_of_device(places_: list[int], on_gpu: bool) -> None:
    """The operation that a GPU gets gives the same on the CPU."""
    places_N = torch.tensor(places_, dtype=torch.int64)
    rows_NK = torch.arange(2.0 * len(places_)).view(-1, 2).double()
    right = torch.zeros(5, 2).double()
    for place, row in zip(places_, rows_NK, strict=True):
        right[place] += row
    if on_gpu:
        got = torch.zeros(5, 2).double().index_put_((places_N,), rows_NK, accumulate=True)
    else:
        got = summed(rows_NK, places_N, 5)
    assert torch.equal(got, right)


def test_long_sequences_lose_nothing_in_their_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 tokens: a float32 sum in order would be off by more than the step-0 check allows."""
    logps_N = -torch.rand(100_000, generator=torch.Generator().manual_seed(1)) * 12

    class Told:
        def trained(self, hidden_TD: Tensor) -> list[Tensor]:
            return []

        module = nn.Identity()
        logits = LogitMap()

        def row_function(self, hidden_TD: Tensor) -> None: ...

        def walk(self, work: Any) -> Any:
            return sequences.Done(torch.stack([-logps_N, logps_N * 0, logps_N * 0]))

    zeros = torch.zeros(len(logps_N), dtype=torch.int64)
    head: Any = Told()
    with torch.no_grad():
        got = sequence_scores(head, torch.zeros(1, D), zeros, zeros, zeros, 1).logps_Q
    exact = logps_N.double().sum()
    assert abs(float(got[0] - exact)) <= abs(float(exact)) * 1e-7
    in_order = torch.zeros(1).index_add(0, zeros, logps_N)  # negative control
    assert abs(float(in_order[0] - exact)) > abs(float(exact)) * 1e-6
