"""Promise: documents lie side by side as they are, and without their last tokens predict the same."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynotune.config.sft import SFTConfig
from dynotune.data.examples import IGNORE
from dynotune.execution.packed import PackedPath
from dynotune.model.packed import Document, SideBySide, lay_side_by_side
from dynotune.objectives.sft import SFTObjective
from dynotune.plan.truncation import Predicting, Spans, as_predicting, as_whole, predicting


@st.composite
def documents(draw: st.DrawFn) -> list[Document]:
    sizes = draw(st.lists(st.integers(1, 9), max_size=6))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    made = []
    for n in sizes:
        ids = random.integers(0, 50, n).astype(np.int32)
        made.append((ids, np.where(random.random(n) < 0.6, ids, IGNORE).astype(np.int32)))
    return made


def predictions(laid: SideBySide) -> list[tuple[int, list[int], int]]:
    """Of each label: its document, what is seen of it up to the predictor, and the label."""
    ends = laid.boundaries_S1
    found = []
    for predictor, target in zip(laid.predictors_N.tolist(), laid.targets_N.tolist(), strict=True):
        segment = int(np.searchsorted(ends, predictor, side="right")) - 1
        found.append((segment, laid.ids_T[ends[segment] : predictor + 1].tolist(), target))
    return found


def by_hand(given: list[Document]) -> list[tuple[int, list[int], int]]:
    return [
        (i, ids[:at].tolist(), int(labels[at]))
        for i, (ids, labels) in enumerate(given)
        for at in range(1, len(ids))
        if labels[at] != IGNORE
    ]


@given(documents(), st.integers(0, 5), st.booleans())
def test_each_label_is_predicted_from_what_precedes_it_in_its_document(
    given: list[Document], pad: int, last: bool
) -> None:
    sizes = [len(ids) for ids, _ in given]
    kept = sizes if last else predicting(np.array(sizes, np.int64)).tolist()
    laid = lay_side_by_side(given, sum(kept) + pad, last=last)
    assert predictions(laid) == by_hand(given)
    assert list(laid.lengths[: len(given)]) == kept
    assert laid.documents == len(given)
    for (ids, _), begin, n in zip(given, laid.boundaries_S1.tolist(), kept, strict=False):
        assert laid.ids_T[begin : begin + n].tolist() == ids[:n].tolist()
        assert laid.positions_T[begin : begin + n].tolist() == list(range(n))


def test_a_last_token_is_left_out_but_for_the_only_one() -> None:
    """A control: without `last` the layout is shorter, and holds no token that only is a label."""
    one, three = np.array([7], np.int32), np.array([1, 2, 3], np.int32)
    whole, short = (lay_side_by_side([(three, three), (one, one)], 8, last=last) for last in (True, False))
    assert whole.ids_T.tolist() == [1, 2, 3, 7, 0, 0, 0, 0]
    assert short.ids_T.tolist() == [1, 2, 7, 0, 0, 0, 0, 0]
    assert short.targets_N.tolist() == whole.targets_N.tolist() == [2, 3]


def test_spans_take_what_is_laid_out() -> None:
    start, end = np.array([0, 5, 9]), np.array([5, 9, 10])
    spans = Spans(start, end, np.array([4, 1, 0]), np.zeros(3, np.int64))
    rows = np.array([2, 0])
    short = as_predicting(spans)
    assert isinstance(short, Predicting)
    assert short.lengths_of(rows).tolist() == [1, 4]
    assert short.attention_of(rows)[0].tolist() == [1, 4]
    assert short.largest(rows, np.array([0, 2])) == 4
    assert short.sequence_lengths_of(rows).tolist() == spans.lengths_of(rows).tolist() == [1, 5]
    assert as_whole(short).lengths_of(rows).tolist() == [1, 5]
    assert as_predicting(short).lengths_of(rows).tolist() == [1, 4]


def test_the_last_token_of_a_micro_batch_may_predict() -> None:
    """All logits at once, of a layout without padding: the label lies in no token that is there."""
    objective = SFTObjective(SFTConfig(output_dir="run"))
    ids, logits_TV = np.array([1, 2, 3], np.int32), torch.randn(3, 5)
    laid = lay_side_by_side([(ids, ids)], 2, last=False)
    path: Any = SimpleNamespace(objective=objective, head=SimpleNamespace(few_logits=lambda hidden_TD: hidden_TD))
    found, _ = PackedPath.loss_of_all_logits(path, logits_TV[:2], laid.unpack(laid.buffer(pin=False)))
    assert torch.equal(found, objective(logits_TV, torch.tensor([1, 2, 3]))[0])
