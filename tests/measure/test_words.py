"""Promise: every word has one meaning. Each is counted by hand here."""

from dataclasses import replace

import numpy as np
import pytest

from dynotune.errors import DataError
from dynotune.measure.flops import StepFlops
from dynotune.measure.totals import Totals
from dynotune.measure.words import (
    DEFINITIONS,
    Counts,
    fill,
    pad_tokens,
    per_second,
    processed_tokens,
    real_tokens,
    same_definitions,
    saved_share,
    utilisation,
)
from tests.measure.steps import step_of

PACKED = step_of([3, 5, 2], labels=6, tokens=[16])
"""Three documents of 10 tokens in all, 6 of them with loss, in one micro-batch of 16."""


def test_real_tokens_are_those_of_documents() -> None:
    assert real_tokens(PACKED) == 10


def test_processed_tokens_hold_the_padding() -> None:
    assert processed_tokens(PACKED) == 16
    assert processed_tokens(step_of([3, 5, 2])) == 10  # the plain path pads nothing
    assert (
        processed_tokens(step_of([3, 5, 2], tokens=[16, 8])) == 24
    )  # a rank without documents runs an empty micro-batch


def test_pad_tokens_belong_to_no_document() -> None:
    assert pad_tokens(10, 16) == 6
    with pytest.raises(AssertionError):
        pad_tokens(16, 10)


def test_fill_is_the_share_of_real_tokens() -> None:
    assert fill(10, 16) == 0.625
    assert fill(0, 0) is None


def test_a_rate_is_over_the_whole_wall_time() -> None:
    assert per_second(10, 4.0) == 2.5
    assert per_second(10, 0.0) is None


def test_utilisation_is_over_what_all_devices_could_have_done() -> None:
    two_devices_for_three_seconds = 2 * 3.0 * 100.0
    assert utilisation(150, two_devices_for_three_seconds) == 0.25
    assert utilisation(150, 0.0) is None


def test_a_step_counted_by_hand() -> None:
    counts = Counts.of(PACKED)
    assert counts == Counts(
        examples=3, documents=3, real_tokens=10, label_tokens=6, processed_tokens=16, sequence_tokens=10
    )
    assert (counts.pad_tokens, counts.fill) == (6, 0.625)
    both = counts + Counts.of(step_of([4], labels=1))
    assert both == Counts(
        examples=4, documents=4, real_tokens=14, label_tokens=7, processed_tokens=20, sequence_tokens=14
    )


def test_a_step_of_pairs_counted_by_hand() -> None:
    """Two pairs: [3 | 2 | 1] and [4 | 1 | 2]. Their sides would take 5 + 4 + 5 + 6 tokens one by one."""
    step = step_of([6, 7], labels=6)
    step = replace(step, attention=(np.array([5, 4, 5, 6]), np.array([3, 4])))
    counts = Counts.of(step)
    assert (counts.examples, counts.pairs, counts.documents) == (2, 2, 4)
    assert (counts.real_tokens, counts.sequence_tokens) == (13, 20)
    assert saved_share(13, 20) == pytest.approx(0.35)
    assert saved_share(13, 13) is None
    totals = Totals()
    totals.add_step(counts, StepFlops(0, 0))
    totals.add_time(4.0, 0.0)
    figures = totals.figures()
    assert (figures["pairs_per_second"], figures["share_of_tokens_saved"]) == (0.5, pytest.approx(0.35))
    alone = Totals()
    alone.add_step(Counts.of(PACKED), StepFlops(0, 0))
    assert not {"pairs_per_second", "share_of_tokens_saved"} & set(alone.figures())


def test_counts_do_not_wrap_at_32_bits() -> None:
    step = step_of([2**30] * 3)
    assert real_tokens(step) == processed_tokens(step) == 3 * 2**30
    assert int(np.full(3, 2**30, np.int32).sum(dtype=np.int32)) != 3 * 2**30  # what a narrower sum says


def test_what_was_measured_under_other_definitions_is_not_compared() -> None:
    mine, other = {"definitions": DEFINITIONS, "mfu": 0.5}, {"definitions": DEFINITIONS + 1, "mfu": 0.4}
    assert same_definitions({"a": mine, "b": dict(mine)}) == DEFINITIONS
    with pytest.raises(DataError, match=rf"a: {DEFINITIONS}, b: {DEFINITIONS + 1}.*Measure all of them again"):
        same_definitions({"a": mine, "b": other})
    with pytest.raises(DataError, match="old: says not under which definitions"):
        same_definitions({"a": mine, "old": {"mfu": 0.5}})
