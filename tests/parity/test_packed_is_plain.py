"""Promise (P1, isolation): packed execution computes what the plain path computes, and documents never see each other.

fp32 on the CPU, dropout 0. Bounds are the design's: per-token loss 1e-5, gradient 1e-4 in relative L2 with a cosine of at
least 1 - 1e-6, one SGD update 1e-3.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from torch import Tensor

from dynotune.config.keys.objective import SFTObjectiveConfig
from dynotune.data.examples import IGNORE
from dynotune.model import packed as packed_module
from dynotune.model.activations.layers import checkpoint_layers
from dynotune.model.attention import hidden_states, packed_attention
from dynotune.model.attention.backends import reference
from dynotune.model.forward import logits_of_document
from dynotune.model.head import find_head
from dynotune.model.packed import pack
from dynotune.objectives.sft import SFTObjective
from tests.model.attention.architectures import ARCHITECTURES, MIXTURES_OF_EXPERTS, architecture

Document = tuple[np.ndarray[Any, np.dtype[np.int32]], np.ndarray[Any, np.dtype[np.int32]]]
Layout = Sequence[tuple[Sequence[int], int]]
"""Micro-batches of a step: which documents, and how many tokens of padding behind them."""

CPU = torch.device("cpu")
OBJECTIVE = SFTObjective(SFTObjectiveConfig())


def documents(seed: int = 0) -> list[Document]:
    """Eight documents of 1 to 23 tokens. Some have a masked prompt, one of two tokens has one label, one has none."""
    generator = np.random.default_rng(seed)
    made = []
    for n, masked in ((9, 4), (23, 0), (2, 0), (14, 10), (1, 0), (6, 0), (17, 8), (5, 2)):
        ids = generator.integers(5, 350, n).astype(np.int32)
        labels = ids.copy()
        labels[:masked] = IGNORE
        made.append((ids, labels))
    return made


LAYOUTS: dict[str, Layout] = {
    "one row": [(range(8), 51)],
    "one row without padding": [(range(8), 0)],
    "three micro-batches in another order": [((6, 1, 4), 23), ((3, 0), 0), ((7, 2, 5), 3)],
    "one document each, and an empty one": [*(((i,), i) for i in range(8)), ((), 16)],
}


@dataclass(frozen=True)
class Outcome:
    """What one step came to."""

    token_losses: list[Tensor]
    """Of each document [its label tokens]."""

    gradient: Tensor
    """Of all trained parameters, flat."""

    update: Tensor
    """What one step of SGD changed, flat."""


def make(kind: str, adapter: bool = False, checkpointing: bool = False) -> Any:
    model: Any = architecture(kind)
    if adapter:
        lora = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, lora)
        generator = torch.Generator().manual_seed(3)
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.data = 0.1 * torch.randn(p.shape, generator=generator)
    model.config.use_cache = False
    if checkpointing:
        checkpoint_layers(model, {})
    return model.train()


def step(model: Any, run: Any) -> Outcome:
    """`run` accumulates gradients and returns the token losses by document."""
    model = copy.deepcopy(model)
    trained = [p for p in model.parameters() if p.requires_grad]
    before = [p.detach().clone() for p in trained]
    token_losses = run(model)
    gradient = torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in trained])
    torch.optim.SGD(trained, lr=0.1, momentum=0.9).step()
    update = torch.cat([(p.detach() - b).flatten() for p, b in zip(trained, before, strict=True)])
    return Outcome(token_losses, gradient, update)


def plain(model: Any, docs: list[Document]) -> Outcome:
    def run(model: Any) -> list[Tensor]:
        losses = []
        for ids, labels in docs:
            ids_T, labels_T = torch.from_numpy(ids).long(), torch.from_numpy(labels).long()
            logits_TV = logits_of_document(model, ids_T)
            loss, _ = OBJECTIVE(logits_TV, labels_T)
            (loss / denominator(docs)).backward()
            nll_T = F.cross_entropy(logits_TV[:-1].detach(), labels_T[1:], reduction="none", ignore_index=IGNORE)
            losses.append(nll_T[labels_T[1:] != IGNORE])
        return losses

    return step(model, run)


def packed(model: Any, docs: list[Document], layout: Layout) -> Outcome:
    def run(model: Any) -> list[Tensor]:
        head = find_head(model, torch.arange(5, 21)).head
        assert head is not None
        losses: dict[int, Tensor] = {}
        with packed_attention(model):
            for rows, padding in layout:
                tokens = sum(len(docs[i][0]) for i in rows) + padding
                batch = pack([docs[i] for i in rows], tokens, CPU)
                hidden_TD = hidden_states(model, batch)
                loss, _ = head(hidden_TD, batch, OBJECTIVE)
                (loss / denominator(docs)).backward()
                of_tokens = head.token_losses(hidden_TD.detach(), batch, OBJECTIVE)
                place_N = torch.bucketize(batch.predictors_N, batch.boundaries_S1[1:].long(), right=True)
                losses |= {row: of_tokens[place_N == at] for at, row in enumerate(rows)}
        return [losses[i] for i in sorted(losses)]

    return step(model, run)


def label_count(document: Document) -> int:
    return int((document[1][1:] != IGNORE).sum())


def denominator(docs: list[Document]) -> int:
    return sum(map(label_count, docs))


def assert_same(ours: Outcome, theirs: Outcome) -> None:
    """P1."""
    assert len(ours.token_losses) == len(theirs.token_losses)
    for a, b in zip(ours.token_losses, theirs.token_losses, strict=True):
        assert a.shape == b.shape
        assert ((a - b).abs() <= 1e-5 * b.abs()).all(), ((a - b).abs() / b.abs()).max()
    a, b = torch.cat(ours.token_losses).double().sum(), torch.cat(theirs.token_losses).double().sum()
    assert abs(a - b) <= 1e-5 * abs(b)
    assert relative(ours.gradient, theirs.gradient) <= 1e-4
    assert F.cosine_similarity(ours.gradient.double(), theirs.gradient.double(), dim=0) >= 1 - 1e-6
    assert relative(ours.update, theirs.update) <= 1e-3


def relative(ours: Tensor, theirs: Tensor) -> float:
    return float((ours.double() - theirs.double()).norm() / theirs.double().norm())


@cache
def expected(kind: str, adapter: bool) -> Outcome:
    return plain(make(kind, adapter), documents())


@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "checkpointing"])
@pytest.mark.parametrize("adapter", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_packed_is_plain(kind: str, adapter: bool, checkpointing: bool) -> None:
    layout = LAYOUTS["three micro-batches in another order" if checkpointing else "one row"]
    assert_same(packed(make(kind, adapter, checkpointing), documents(), layout), expected(kind, adapter))


@pytest.mark.parametrize("checkpointing", [False, True])
def test_what_is_recomputed_is_packed_attention_again(checkpointing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    right = reference.attend
    monkeypatch.setattr(reference, "attend", lambda *args: calls.append(args[3]) or right(*args))
    packed(make("llama", checkpointing=checkpointing), documents(), LAYOUTS["one row"])
    assert len(calls) == (4 if checkpointing else 2)
    assert set(calls) == {(9, 23, 2, 14, 1, 6, 17, 5, 51)}


@pytest.mark.parametrize("adapter", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_however_it_is_laid_out(layout: Layout, adapter: bool) -> None:
    assert_same(packed(make("gemma3_text", adapter), documents(), layout), expected("gemma3_text", adapter))


def test_padding_longer_than_a_table_of_positions() -> None:
    """gpt2 here has 256 positions: those of padding must not run on."""
    layout = [(range(8), 300)]
    assert_same(packed(make("gpt2"), documents(), layout), expected("gpt2", False))


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any order, any cut into micro-batches, any padding."""
    order = draw(st.permutations(range(8)))
    cuts = sorted(draw(st.sets(st.integers(1, 7))))
    ends = [0, *cuts, 8]
    paddings = draw(st.lists(st.integers(0, 70), min_size=len(ends) - 1, max_size=len(ends) - 1))
    return [(order[a:b], padding) for (a, b), padding in zip(pairwise(ends), paddings, strict=True)]


@settings(max_examples=12, deadline=None)
@given(layout=layouts())
def test_any_split_and_any_padding(layout: Layout) -> None:
    assert_same(packed(make("mistral"), documents(), layout), expected("mistral", False))


@pytest.mark.long
@pytest.mark.parametrize("kind", ARCHITECTURES)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(layout=layouts(), adapter=st.booleans(), checkpointing=st.booleans())
def test_any_split_of_any_architecture(kind: str, layout: Layout, adapter: bool, checkpointing: bool) -> None:
    assert_same(packed(make(kind, adapter, checkpointing), documents(), layout), expected(kind, adapter))


def changed(docs: list[Document], which: int) -> list[Document]:
    """Another document of the same length and labels in the place of `which`."""
    other = documents(seed=1)
    return [other[i] if i == which else document for i, document in enumerate(docs)]


def assert_isolated(kind: str, which: int) -> None:
    docs, layout = documents(), LAYOUTS["one row"]
    before = packed(make(kind), docs, layout).token_losses
    after = packed(make(kind), changed(docs, which), layout).token_losses
    assert not torch.equal(before[which], after[which])
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        if i == which:
            continue
        if kind in MIXTURES_OF_EXPERTS:  # the experts' products have other numbers of rows, and round differently
            assert ((a - b).abs() <= 1e-6 * b.abs()).all()
        else:
            assert torch.equal(a, b)


@pytest.mark.parametrize("which", [0, 3])
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_no_document_sees_another(kind: str, which: int) -> None:
    assert_isolated(kind, which)


# What follows shows that the assertions above can fail.


def plant(monkeypatch: pytest.MonkeyPatch, lengths: Any = None, wider: int = 0) -> None:
    right = reference.attend

    def wrong(q: Tensor, k: Tensor, v: Tensor, n: Any, scaling: float, window: int | None, *more: Any) -> Tensor:
        return right(q, k, v, lengths(n) if lengths else n, scaling, window + wider if window else None, *more)

    monkeypatch.setattr(reference, "attend", wrong)


@pytest.mark.parametrize("kind", ["llama", "mistral", "gpt2"])
def test_a_planted_leak_is_caught(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, lengths=lambda n: (n[0] + n[1], *n[2:]))
    with pytest.raises(AssertionError):
        assert_same(packed(make(kind), documents(), LAYOUTS["one row"]), expected(kind, False))
    with pytest.raises(AssertionError):
        assert_isolated(kind, 0)


@pytest.mark.parametrize("wider", [-1, 1])
def test_a_planted_window_that_is_off_by_one_is_caught(wider: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, wider=wider)
    with pytest.raises(AssertionError):
        assert_same(packed(make("mistral"), documents(), LAYOUTS["one row"]), expected("mistral", False))


def test_a_planted_loss_mask_that_is_off_by_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = packed_module.lay_side_by_side

    def wrong(docs: list[Document], tokens: int) -> Any:
        return right([(ids, np.append(labels[1:], IGNORE).astype(np.int32)) for ids, labels in docs], tokens)

    monkeypatch.setattr(packed_module, "lay_side_by_side", wrong)
    with pytest.raises(AssertionError):
        assert_same(packed(make("llama"), documents(), LAYOUTS["one row"]), expected("llama", False))


def test_planted_positions_that_run_on_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = packed_module.lay_side_by_side

    def wrong(docs: list[Document], tokens: int) -> Any:
        laid = right(docs, tokens)
        laid.positions_T[:] = np.arange(tokens)
        return laid

    monkeypatch.setattr(packed_module, "lay_side_by_side", wrong)
    with pytest.raises(AssertionError):
        assert_same(packed(make("gpt2"), documents(), LAYOUTS["one row"]), expected("gpt2", False))


def test_a_planted_dropped_document_is_caught() -> None:
    for dropped in (1, 2, 7):
        layout = [([i for i in range(8) if i != dropped], 10)]
        with pytest.raises(AssertionError):
            assert_same(packed(make("llama"), documents(), layout), expected("llama", False))


def test_a_document_that_loses_only_its_gradient_is_caught() -> None:
    right = packed(make("llama"), documents(), LAYOUTS["one row"])
    without = packed(make("llama"), documents(), [([i for i in range(8) if i != 2], 10)])
    with pytest.raises(AssertionError):
        assert_same(Outcome(right.token_losses, without.gradient, right.update), expected("llama", False))
    with pytest.raises(AssertionError):
        assert_same(Outcome(right.token_losses, right.gradient, without.update), expected("llama", False))
