"""Promise (P1, isolation): documents that share their beginning are computed as if each stood alone.

fp32 on the CPU, dropout 0, against separate sequences on the plain path, and packed. Bounds as in `test_packed_is_plain`.
"""

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynotune.data.examples import IGNORE
from dynotune.model import families as families_module
from dynotune.model.attention import hidden_states, packed_attention
from dynotune.model.attention.backends import reference
from dynotune.model.families import pack_families, tokens_of, trunk_of
from dynotune.model.head import find_head
from dynotune.model.head.sequences import sequence_scores
from tests.model.attention.architectures import ARCHITECTURES, MIXTURES_OF_EXPERTS
from tests.parity.test_packed_is_plain import (
    CPU,
    OBJECTIVE,
    Document,
    Outcome,
    assert_same,
    denominator,
    make,
    packed,
    plain,
    step,
)

Cut = Sequence[Sequence[Sequence[int]]]
"""Micro-batches of families of documents."""


def documents(seed: int = 0) -> list[Document]:
    """Three pairs and two prompts with more answers. Windows of 4 tokens end in trunks, in branches and across both."""
    generator = np.random.default_rng(seed)
    made = []
    # Tokens of the prompt, of a beginning that the answers have in common, and of what is left of each answer.
    for prompt, alike, answers in ((9, 0, (6, 3)), (1, 2, (1, 12)), (14, 3, (5, 5)), (6, 0, (2, 7, 1)), (2, 0, (4,))):
        trunk = generator.integers(5, 350, prompt + alike)
        for i, n in enumerate(answers):
            rest = generator.integers(5, 350, n)
            rest[0] = 5 + i  # answers part here
            ids = np.concatenate([trunk, rest]).astype(np.int32)
            labels = ids.copy()
            labels[:prompt] = IGNORE
            made.append((ids, labels))
    return made


DOCUMENTS = 10
ONE_ROW: Cut = [[(0, 1), (2, 3), (4, 5), (6, 7, 8), (9,)]]
CUTS: dict[str, Cut] = {
    "one row": ONE_ROW,
    "nothing shared": [[(i,) for i in range(DOCUMENTS)]],
    "a family each, and an empty micro-batch": [*([family] for family in ONE_ROW[0]), []],
    "another order, another first answer": [[(3, 2), (8, 6)], [(5, 4), (9,), (7,), (1, 0)]],
}


def shared(model: Any, docs: list[Document], cut: Cut = ONE_ROW, padding: int = 13, spare_keys: int = 0) -> Outcome:
    def run(model: Any) -> list[torch.Tensor]:
        head = find_head(model, torch.arange(5, 21)).head
        assert head is not None
        losses: dict[int, torch.Tensor] = {}
        with packed_attention(model):
            for rows in cut:
                batch = laid_out([[docs[i] for i in family] for family in rows], padding, spare_keys)
                hidden_TD = hidden_states(model, batch)
                labels = batch.predictors_N, batch.targets_N, batch.sequences_N
                logps_Q = sequence_scores(head, hidden_TD, *labels, batch.sequences).logps_Q
                (-logps_Q.sum() / denominator(docs)).backward()
                of_tokens = head.token_losses(hidden_TD.detach(), batch, OBJECTIVE)
                order = [i for family in rows for i in family]
                losses |= {row: of_tokens[batch.sequences_N == at] for at, row in enumerate(order)}
        return [losses[i] for i in sorted(losses)]

    return step(model, run)


def laid_out(families: list[list[Document]], padding: int, spare_keys: int) -> Any:
    tokens, keys = padding, padding + spare_keys
    for family in families:
        lengths = np.array([[len(ids) for ids, _ in family]])
        tokens += int(tokens_of(np.array([trunk_of([ids for ids, _ in family])]), lengths)[0])
        keys += int(lengths.sum())
    return pack_families(families, tokens, CPU, keys)


@cache
def expected(kind: str, adapter: bool) -> Outcome:
    return plain(make(kind, adapter), documents())


def test_there_is_something_to_share() -> None:
    """Trunks are as long as the list above says, so that what follows is about them."""
    docs = documents()
    trunks = [trunk_of([docs[i][0] for i in family]) for family in ONE_ROW[0]]
    assert trunks == [9, 3, 17, 6, 0]
    assert len(laid_out([[docs[i] for i in family] for family in ONE_ROW[0]], 0, 0).ids_T) == sum(
        len(ids) for ids, _ in docs
    ) - (9 + 3 + 17 + 2 * 6)


@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "checkpointing"])
@pytest.mark.parametrize("adapter", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_shared_is_separate(kind: str, adapter: bool, checkpointing: bool) -> None:
    ours = shared(make(kind, adapter, checkpointing), documents(), spare_keys=30 * checkpointing)
    assert_same(ours, expected(kind, adapter))


@pytest.mark.parametrize("adapter", [False, True], ids=["full", "lora"])
def test_shared_is_packed(adapter: bool) -> None:
    """Separate sequences, packed: what a run does that does not share."""
    ours = shared(make("gemma3_text", adapter), documents())
    assert_same(ours, packed(make("gemma3_text", adapter), documents(), [(range(DOCUMENTS), 5)]))


@pytest.mark.parametrize("kind", ["mistral", "gpt2"])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_however_it_is_cut(cut: Cut, kind: str) -> None:
    assert_same(shared(make(kind), documents(), cut), expected(kind, False))


@settings(max_examples=10, deadline=None)
@given(padding=st.integers(1, 70), spare_keys=st.integers(0, 70))
def test_any_padding_of_tokens_and_keys(padding: int, spare_keys: int) -> None:
    assert_same(shared(make("mistral"), documents(), ONE_ROW, padding, spare_keys), expected("mistral", False))


@st.composite
def drawn_documents(draw: st.DrawFn) -> list[Document]:
    """Five families of two documents of one to twenty tokens, that have any beginning in common and label any tokens."""
    made = []
    for family in range(5):
        generator = np.random.default_rng([family, draw(st.integers(0, 99))])
        trunk = generator.integers(5, 350, draw(st.integers(0, 12)))
        for _ in range(2):
            ids = np.concatenate([trunk, generator.integers(5, 350, draw(st.integers(1, 8)))]).astype(np.int32)
            masked = draw(st.integers(0, len(ids) - 1))
            made.append((ids, np.where(np.arange(len(ids)) < masked, IGNORE, ids).astype(np.int32)))
    made[0][1][:] = made[0][0]  # there is a label, unless the document is of one token
    return made if denominator(made) else [*made[:-1], (np.array([7, 8], np.int32), np.array([7, 8], np.int32))]


@pytest.mark.long
@pytest.mark.parametrize("kind", ARCHITECTURES)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(docs=drawn_documents(), adapter=st.booleans(), padding=st.integers(1, 40), spare_keys=st.integers(0, 70))
def test_any_families_of_any_architecture(
    kind: str, docs: list[Document], adapter: bool, padding: int, spare_keys: int
) -> None:
    cut: Cut = [[(0, 1), (2, 3)], [(4, 5, 6), (7, 8, 9)]]
    ours = shared(make(kind, adapter), docs, cut, padding, spare_keys)
    assert_same(ours, plain(make(kind, adapter), docs))


def test_without_padding() -> None:
    assert_same(shared(make("qwen2"), documents(), padding=0), expected("qwen2", False))


@pytest.mark.parametrize("checkpointing", [False, True])
def test_what_is_recomputed_sees_the_gathered_keys_again(checkpointing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    right = reference.attend
    monkeypatch.setattr(reference, "attend", lambda *args: calls.append((args[3], args[7])) or right(*args))
    shared(make("llama", checkpointing=checkpointing), documents())
    assert len(calls) == (4 if checkpointing else 2)
    lengths, key_lengths = calls[0]
    assert set(calls) == {((15, 3, 4, 12, 22, 5, 8, 7, 1, 6, 13), (15, 12, 4, 15, 22, 22, 8, 13, 7, 6, 13))}
    assert sum(key_lengths) > sum(lengths)


def changed(docs: list[Document], which: Sequence[int]) -> list[Document]:
    """Other tokens, of the same number, in documents `which`: where the family parts it parts as before."""
    docs, generator = copy.deepcopy(docs), np.random.default_rng(7)
    trunk = trunk_of([docs[i][0] for i in which]) if len(which) > 1 else len(docs[which[0]][0]) - 1
    common = generator.integers(20, 350, trunk)
    for i in which:
        ids, labels = docs[i]
        if len(which) > 1:
            ids[:trunk] = common
        else:
            ids[-1] = 351 - ids[-1]
        labels[labels != IGNORE] = ids[labels != IGNORE]
    return docs


@pytest.mark.parametrize(
    "which", [(1,), (4, 5), (6, 7, 8)], ids=["a rejected answer", "a pair's prompt", "three's prompt"]
)
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_no_other_document_notices(kind: str, which: tuple[int, ...]) -> None:
    before, after = (shared(make(kind), docs).token_losses for docs in (documents(), changed(documents(), which)))
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        if i in which:
            assert not torch.equal(a, b)
        elif kind in MIXTURES_OF_EXPERTS:  # the experts' products have other numbers of rows, and round differently
            assert ((a - b).abs() <= 1e-6 * b.abs()).all()
        else:
            assert torch.equal(a, b)


# What follows shows that the assertions above can fail.


def plant(monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    """`spoil` what is laid out, in place or by another."""
    right = families_module.lay_families
    monkeypatch.setattr(families_module, "lay_families", lambda *args: spoil(right(*args)))


def assert_caught(kind: str = "llama") -> None:
    with pytest.raises(AssertionError):
        assert_same(shared(make(kind), documents()), expected(kind, False))


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral"])
def test_positions_that_do_not_restart_are_caught(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second answer's go on behind the first's: with rotary embeddings its distance to the prompt is wrong."""

    def running_on(laid: Any) -> Any:
        laid.positions_T[15:18] += 6
        return laid

    plant(monkeypatch, running_on)
    assert_caught(kind)


def test_a_rejected_answer_that_sees_the_chosen_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keys: prompt, then chosen tokens in the place of the prompt's last ones."""

    def seeing(laid: Any) -> Any:
        start = laid.key_boundaries_S1[1]
        laid.key_rows_K[start + 6 : start + 9] = [9, 10, 11]
        return laid

    plant(monkeypatch, seeing)
    assert_caught()


def test_one_long_causal_row_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed attention as it is without families: answers do not see their prompt."""
    right = reference.attend
    monkeypatch.setattr(
        reference, "attend", lambda q, k, v, n, s, w, c, keys: right(q, *without_trunks(k, v, n, keys), n, s, w, c)
    )
    assert_caught()


def without_trunks(k: Any, v: Any, lengths: Any, key_lengths: Any) -> tuple[Any, Any]:
    """The last keys of each segment, as many as it has queries."""
    parts = [[x[:, -n:] for x, n in zip(y.split(key_lengths, 1), lengths, strict=True)] for y in (k, v)]
    return torch.cat(parts[0], 1), torch.cat(parts[1], 1)


def test_keys_aligned_at_the_first_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reference.seen_by
    monkeypatch.setattr(reference, "seen_by", lambda q, n, w, d: right(q, q, w, d).new_ones(q, n).tril())
    assert_caught()


def test_a_window_that_counts_from_the_first_query_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reference.seen_by
    monkeypatch.setattr(reference, "seen_by", lambda q, n, w, d: right(q, n, None if n > q else w, d))
    assert_caught("mistral")


@pytest.mark.parametrize("field", ["predictors_N", "targets_N"])
def test_labels_that_are_off_by_one_are_caught(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(laid: Any) -> Any:
        getattr(laid, field)[:] = np.roll(getattr(laid, field), 1)
        return laid

    plant(monkeypatch, shifted)
    assert_caught()


def test_a_first_answer_token_without_its_gradient_is_caught() -> None:
    """The prompt's last token predicts for both answers: a head that keeps one gradient a row loses the other's."""
    right = shared(make("llama"), documents())
    docs = documents()
    docs[1][1][9] = IGNORE
    lost = shared(make("llama"), docs)
    with pytest.raises(AssertionError):
        assert_same(Outcome(right.token_losses, lost.gradient, right.update), expected("llama", False))
