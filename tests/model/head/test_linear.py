"""Promise: labelled rows alone give the loss and the gradients that all rows of logits give."""

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dynotune.model.head import linear
from dynotune.model.head.chunks import chunks
from dynotune.model.head.head import Head
from dynotune.model.head.logit_map import LogitMap
from tests.model.head.plain import VARIANTS, batch_of, labelled, objective, plain_loss

D, V = 24, 77
MAPS = [LogitMap(), LogitMap(cap=2.0), LogitMap(scale=0.25), LogitMap(scale=3.0, cap=4.0)]


def problem(
    frozen: bool, bias: bool = False, seed: int = 0, lengths: tuple[int, ...] = (9, 1, 30, 12)
) -> tuple[Any, Tensor, nn.Linear]:
    torch.manual_seed(seed)
    documents = labelled(lengths, V, seed=seed)
    hidden_TD = torch.randn(64, D).requires_grad_()
    layer = nn.Linear(D, V, bias=bias)
    nn.init.normal_(layer.weight, std=0.7)
    layer.requires_grad_(not frozen)
    return documents, hidden_TD, layer


def gradients(loss: Tensor, *tensors: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss / 7, [t for t in tensors if t.requires_grad]))


@pytest.mark.parametrize("logits", MAPS, ids=str)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize(("frozen", "bias"), [(True, False), (False, False), (False, True), (True, True)])
def test_loss_sums_and_gradients_are_the_plain_paths(
    monkeypatch: pytest.MonkeyPatch, frozen: bool, bias: bool, variant: dict[str, Any], logits: LogitMap
) -> None:
    documents, hidden_TD, layer = problem(frozen, bias)
    what = objective(**variant)
    expected, expected_sums = plain_loss(documents, hidden_TD, lambda h: logits(layer(h)), what)
    batch = batch_of(documents, 64)
    monkeypatch.setattr(linear, "chunks", lambda n, *_: small(n))
    loss, sums = Head(layer, logits, V)(hidden_TD, batch, what)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(sums, expected_sums, rtol=1e-6, atol=1e-6)
    wanted = gradients(expected, hidden_TD, *layer.parameters())
    for got, right in zip(gradients(loss, hidden_TD, *layer.parameters()), wanted, strict=True):
        assert got.dtype == right.dtype
        torch.testing.assert_close(got, right, rtol=1e-5, atol=1e-6)


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.1, 0.7, 1.0]),
    st.integers(0, 30),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from(VARIANTS),
    st.integers(0, 1000),
)
@settings(max_examples=120, deadline=None)
def test_any_documents_masks_padding_and_chunks(
    lengths: list[int], share: float, padding: int, chunk: int, frozen: bool, variant: dict[str, Any], seed: int
) -> None:
    documents = labelled(lengths, V, share, seed)
    tokens = sum(lengths) + padding
    torch.manual_seed(seed)
    hidden_TD, layer = torch.randn(tokens, D).requires_grad_(), nn.Linear(D, V).requires_grad_(not frozen)
    what = objective(**variant)
    expected, expected_sums = plain_loss(documents, hidden_TD, layer, what)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "chunks", lambda n, *_: [(i, min(i + chunk, n)) for i in range(0, n, chunk)])
        loss, sums = Head(layer, LogitMap(), V)(hidden_TD, batch_of(documents, tokens), what)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sums, expected_sums, rtol=1e-5, atol=1e-5)
    wanted = gradients(expected, hidden_TD, *layer.parameters())
    for got, right in zip(gradients(loss, hidden_TD, *layer.parameters()), wanted, strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-6)


def test_a_label_that_is_one_row_off_would_show() -> None:
    """Negative control of every comparison here."""
    documents, hidden_TD, layer = problem(frozen=True)
    batch = batch_of(documents, 64)
    shifted = dataclasses.replace(batch, predictors_N=batch.predictors_N + 1)
    right, wrong = (Head(layer, LogitMap(), V)(hidden_TD, b, objective())[0] for b in (batch, shifted))
    assert abs(float((right - wrong).detach())) > 0.1


def small(n: int) -> list[tuple[int, int]]:
    """Chunks of 5 rows: the last one is short."""
    return [(i, min(i + 5, n)) for i in range(0, n, 5)]


@given(st.integers(0, 100_000), st.integers(1, 300_000), st.sampled_from([2, 4, 8]))
@settings(max_examples=300, deadline=None)
def test_chunks_cover_each_row_once_within_the_budget(n: int, vocabulary: int, itemsize: int) -> None:
    plan = chunks(n, vocabulary, itemsize)
    assert [first for first, _ in plan] == [0, *[end for _, end in plan]][: len(plan)]
    assert (plan[-1][1] if plan else 0) == n
    sizes = [end - first for first, end in plan]
    assert all(size > 0 for size in sizes)
    assert max(sizes, default=0) <= max(128, (5 << 28) // (vocabulary * itemsize))
    assert len(set(sizes[:-1])) <= 1
    if len(sizes) > 1:
        assert sizes[0] % 128 == 0
        assert sizes[0] - sizes[-1] < 128 * len(sizes)  # even: no chunk is left with a few rows


def test_few_rows_are_one_chunk() -> None:
    assert chunks(700, 152_064, 2) == [(0, 700)]
    assert len(chunks(16_384, 152_064, 2)) == 4
