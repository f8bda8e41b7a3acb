"""Promise: each backend computes causal attention within segments, as transformers' own masks define it."""

import inspect
import itertools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers.masking_utils import causal_mask_function, sliding_window_causal_mask_function

from dynotune.model.attention.backends import Asked, reference, varlen
from dynotune.model.attention.call import Call, packed_attention_call
from dynotune.model.attention.segments import Segments, segments_of, segments_with_keys


def dense(
    q_HTD: Tensor,
    k_KTD: Tensor,
    v_KTD: Tensor,
    lengths: tuple[int, ...],
    scaling: float,
    window: int | None,
    cap: float | None,
) -> Tensor:
    """[T, H, D] of documents by one mask over all of the row, asked of transformers key by key."""
    sees = causal_mask_function if window is None else sliding_window_causal_mask_function(window)
    T = q_HTD.shape[1]
    document = [i for i, n in enumerate(lengths) for _ in range(n)]
    mask_TT = torch.tensor(
        [
            [document[i] == document[j] and bool(sees(0, 0, torch.tensor(i), torch.tensor(j))) for j in range(T)]
            for i in range(T)
        ]
    )
    shared = q_HTD.shape[0] // k_KTD.shape[0]
    scores = q_HTD @ k_KTD.repeat_interleave(shared, 0).mT * scaling
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    weights = scores.masked_fill(~mask_TT, float("-inf")).softmax(-1)
    return (weights @ v_KTD.repeat_interleave(shared, 0)).transpose(0, 1)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    lengths = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(any))
    trunks = draw(st.none() | st.just([draw(st.integers(0, 5)) if n else 0 for n in lengths]))
    k_heads = draw(st.sampled_from([1, 2]))
    T, H, D = sum(lengths), k_heads * draw(st.sampled_from([1, 3])), 8
    torch.manual_seed(draw(st.integers(0, 99)))
    return {
        "q": torch.randn(H, T, D, dtype=torch.float64, requires_grad=True),
        "k": torch.randn(k_heads, T, D, dtype=torch.float64, requires_grad=True),
        "v": torch.randn(k_heads, T, D, dtype=torch.float64, requires_grad=True),
        "lengths": lengths,
        "trunks": trunks,
        "window": draw(st.none() | st.integers(1, 11)),
        "cap": draw(st.none() | st.just(0.7)),
    }  # fmt: skip


def call(case: dict[str, Any], **more: Any) -> Tensor:
    """Through the function that transformers calls, with the boundaries as `hidden_states` makes them."""
    ends = torch.tensor([0, *case["lengths"]]).cumsum(0).int()
    segments = segments_of(ends, case["lengths"])
    if case.get("trunks"):
        segments = segments_behind_trunks(case["lengths"], case["trunks"])
    keywords = segments.keywords()
    out, _ = packed_attention_call(
        nn.Identity(), case["q"][None], case["k"][None], case["v"][None], None, scaling=0.4,
        sliding_window=case["window"], softcap=case["cap"], **keywords, **more,
    )  # fmt: skip
    return out[0]


def segments_behind_trunks(lengths: Sequence[int], trunks: Sequence[int]) -> Segments:
    """Segment s of queries behind `trunks[s]` keys, which are those of the row's first tokens, whatever these are."""
    ends, rows, end = [0, *itertools.accumulate(lengths)], [], 0
    for n, trunk in zip(lengths, trunks, strict=True):
        rows += [row % ends[-1] for row in range(trunk)] + list(range(end, end + n))
        end += n
    key_lengths = [n + trunk for n, trunk in zip(lengths, trunks, strict=True)]
    key_ends = torch.tensor([0, *key_lengths]).cumsum(0).int()
    return segments_with_keys(torch.tensor(ends).int(), lengths, torch.tensor(rows), key_ends, key_lengths)


def document_by_document(case: dict[str, Any]) -> Tensor:
    """[T, H, D]: each document with its trunk as a row of its own, of whose outputs the trunk's are left out."""
    q, k, v = case["q"], case["k"], case["v"]
    out, end = [], 0
    for n, trunk in zip(case["lengths"], case["trunks"], strict=True):
        if not n:
            continue
        rows = torch.tensor([row % q.shape[1] for row in range(trunk)] + list(range(end, end + n)), dtype=torch.int64)
        whole = dense(q[:, rows], k[:, rows], v[:, rows], (n + trunk,), 0.4, case["window"], case["cap"])
        out.append(whole[trunk:])
        end += n
    return torch.cat(out)


def assert_like_dense(case: dict[str, Any], ours: Tensor) -> None:
    q, k, v = case["q"], case["k"], case["v"]
    if case.get("trunks"):
        theirs = document_by_document(case)
    else:
        theirs = dense(q, k, v, case["lengths"], 0.4, case["window"], case["cap"])
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    weights = torch.randn(ours.shape, dtype=torch.float64)
    ours_grads = torch.autograd.grad((ours * weights).sum(), [q, k, v])
    theirs_grads = torch.autograd.grad((theirs * weights).sum(), [q, k, v])
    for a, b in zip(ours_grads, theirs_grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_the_reference_is_what_the_masks_say(case: dict[str, Any]) -> None:
    assert_like_dense(case, call(case))


class FakeKernel:
    """The variable-length kernel by its documentation: key j is seen by query i of the same segment if
    i - left <= j <= i + right, where -1 is no bound and i counts such that the last query stands at the last key. It
    records what it was given."""

    def __init__(self) -> None:
        self.given: list[dict[str, Any]] = []

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int, max_k: int, *,
        scale: float, window_size: tuple[int, int], enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        assert enable_gqa or query.shape[1] == key.shape[1]
        assert type(max_q) is type(max_k) is int
        assert cu_seq_q.dtype == torch.int32
        ends, key_ends = cu_seq_q.tolist(), cu_seq_k.tolist()
        assert max_q >= max(b - a for a, b in pairwise(ends))
        assert max_k >= max(b - a for a, b in pairwise(key_ends))
        self.given.append({"ends": ends, "longest": max_q, "window": window_size})
        left, right = window_size
        out = []
        for (a, b), (c, d) in zip(pairwise(ends), pairwise(key_ends), strict=True):
            i, j = torch.arange(d - c - (b - a), d - c)[:, None], torch.arange(d - c)[None, :]  # bottom right
            seen = (j <= i + right) & ((j >= i - left) if left >= 0 else torch.tensor(True))
            shared = query.shape[1] // key.shape[1]
            q, k, v = (x.transpose(0, 1) for x in (query[a:b], key[c:d], value[c:d]))
            scores = q @ k.repeat_interleave(shared, 0).mT * scale
            weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
            out.append((weights @ v.repeat_interleave(shared, 0)).transpose(0, 1))
        return torch.cat(out)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    fake = FakeKernel()
    monkeypatch.setattr(varlen, "limits", lambda asked: None)
    monkeypatch.setattr(varlen, "varlen_attn", fake)
    return fake


def test_the_kernel_is_asked_for_what_the_masks_say() -> None:
    seen: list[Any] = []

    @settings(max_examples=60, deadline=None)
    @given(case=cases())
    def check(case: dict[str, Any]) -> None:
        case["cap"] = None
        calls: list[Call] = []
        with pytest.MonkeyPatch.context() as patch:
            fake = FakeKernel()
            patch.setattr(varlen, "limits", lambda asked: None)
            patch.setattr(varlen, "varlen_attn", fake)
            patch.setattr(varlen, "_SHARED", {"enable_gqa": True})
            assert_like_dense(case, call(case, attention_calls=calls))
        assert [c.backend for c in calls] == ["varlen"]
        seen.extend(fake.given)

    check()
    assert {len(given["ends"]) for given in seen} == {9}  # few shapes: up to eight segments look the same
    assert {given["longest"] for given in seen} == {64}


def test_the_installed_kernel_knows_what_it_is_asked() -> None:
    names = inspect.signature(varlen.varlen_attn).parameters
    assert {"scale", "window_size", *varlen._SHARED} <= set(names)
    assert ("enable_gqa" in names) == bool(varlen._SHARED)
    assert list(names)[:7] == ["query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k"]


FINE = Asked(torch.device("cuda", 0), torch.bfloat16, 4, 2, 64, 64, None, None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": torch.device("cpu")}, "no kernel for the CPU"),
        ({"dtype": torch.float32}, "not in float32"),
        ({"softcap": 30.0}, "soft-cap"),
        ({"value_dim": 16}, "one size"),
        ({"head_dim": 20, "value_dim": 20}, "multiples of 8"),
        ({"head_dim": 512, "value_dim": 512}, "up to 256"),
        ({"heads": 3}, "evenly"),
        ({}, None),
    ],
)
def test_what_the_kernel_cannot_do_goes_to_the_reference_with_a_reason(
    changes: dict[str, Any], words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    reason = varlen.limits(FINE._replace(**changes))
    assert reason is None if words is None else words in str(reason)
    if words is None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
        assert "8.0" in str(varlen.limits(FINE))


@given(lengths=st.lists(st.integers(0, 5000), min_size=1, max_size=40).filter(any))
def test_segments_come_in_few_shapes_and_keep_their_ends(lengths: list[int]) -> None:
    ends = torch.tensor([0, *lengths]).cumsum(0).int()
    segments = segments_of(ends, lengths)
    assert segments.boundaries_S1.dtype == torch.int32
    assert segments.boundaries_S1[: len(ends)].tolist() == ends.tolist()
    assert set(segments.boundaries_S1[len(ends) :].tolist()) <= {sum(lengths)}
    assert len(segments.boundaries_S1) - 1 in (8, 16, 32, 64)
    assert segments.longest in (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    assert max(lengths) <= segments.longest < max(2 * max(lengths), 65)
    assert sum(segments.lengths) == sum(lengths)
    assert type(segments.longest) is int


def test_under_autocast_attention_computes_as_torchs_own(kernel: FakeKernel) -> None:
    """Rotary embeddings of float32 hidden states bring queries and keys back to float32; values are bfloat16 then."""
    q, k, v = (torch.randn(1, 4, 6, 8) for _ in range(3))
    segments: Segments = segments_of(torch.tensor([0, 6], dtype=torch.int32), [6])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, _ = packed_attention_call(nn.Identity(), q, k, v.bfloat16(), None, **segments.keywords())
    assert out.dtype == torch.bfloat16


def test_reference_never_makes_more_than_a_document_squared(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0
    right = torch.Tensor.softmax

    def watched(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        nonlocal largest
        largest = max(largest, self.shape[-1] * self.shape[-2])
        return right(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "softmax", watched)
    x = torch.randn(2, 60, 8)
    reference.attend(x, x, x, (20, 30, 10), 0.3, 4, 5.0)
    assert largest == 900


def test_gradients_come_back_as_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of `x[0]` is a copy into zeros, three to five of them a layer; taking the row that way is the control."""
    monkeypatch.setattr(reference, "attend", lambda q, k, v, *_: (q * (k.sum() + v.sum())).transpose(0, 1))
    q, k, v = (torch.randn(1, heads, 9, 8, requires_grad=True) for heads in (2, 1, 1))
    keywords = segments_behind_trunks([4, 5], [2, 0]).keywords()

    def copies(out: Tensor) -> bool:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            out.sum().backward()
        return any(event.name == "aten::select_backward" for event in profile.events() or ())

    assert not copies(packed_attention_call(nn.Identity(), q, k, v, None, **keywords)[0])
    assert copies(packed_attention_call(nn.Identity(), q, k, v, None, **keywords)[0][0])
