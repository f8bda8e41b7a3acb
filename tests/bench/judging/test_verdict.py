"""Promise: a verdict follows from bounds that were fixed before; what cannot be compared has none, and too good is said."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.bench.judging.more_pairs import more_pairs
from dynotune.bench.judging.verdict import (
    ALIKE,
    CLEAR,
    Judgement,
    compare_memory,
    judge,
    largest_ratio,
    why_not_comparable,
)
from dynotune.bench.statistics import MOST_PAIRS, Estimate, estimate
from dynotune.results.result import Check, Engaged, Memory, MemoryVerdict, Parity, Verdict


def measured(ratio: float, half: float, spread: float = 0.01, pairs: int = 6) -> Estimate:
    """ratio, half: of the estimate, and of its interval in per cent of a logarithm."""
    return made(math.log(ratio), half / 100, spread, pairs)


def made(mean: float, half: float, spread: float, pairs: int, margin: float = 0.0) -> Estimate:
    return Estimate(pairs, mean, mean - half, mean + half, spread, mean, 0.03, None, margin)


@pytest.mark.parametrize(
    ("ratio", "half", "verdict"),
    [
        (1.03, 0.5, Verdict.FASTER),
        (1 / 1.03, 0.5, Verdict.SLOWER),
        (1.03, 2.4, Verdict.FASTER),
        (1.03, 2.5, Verdict.UNRESOLVED),
        (1.004, 0.5, Verdict.SAME),
        (1 / 1.004, 0.5, Verdict.SAME),
        (1.007, 0.5, Verdict.UNRESOLVED),
        (1.008, 0.1, Verdict.FASTER),
        (1.000, 1.0, Verdict.UNRESOLVED),
        (1.000, 0.99, Verdict.SAME),
    ],
)
def test_bounds(ratio: float, half: float, verdict: Verdict) -> None:
    assert judge(measured(ratio, half)).verdict is verdict


@given(st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=12), st.lists(st.floats(-0.05, 0.05), max_size=2))
def test_swapping_the_arms_swaps_faster_and_slower(pairs: list[float], noise: list[float]) -> None:
    swapped = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    one = judge(estimate(pairs, noise))
    other = judge(estimate([-d for d in pairs], [-d for d in noise]))
    assert other.verdict is swapped.get(one.verdict, one.verdict)
    assert other.needs_more_pairs == one.needs_more_pairs


@settings(deadline=None)
@given(st.floats(-0.05, 0.05), st.floats(1e-4, 0.03), st.integers(2, 16))
def test_more_pairs_are_an_even_number_or_too_many(mean: float, spread: float, pairs: int) -> None:
    """Whether they are enough is counted in `tests/bench/test_more_pairs.py`."""
    verdict = judge(made(mean, 1.0, spread, pairs))
    assert verdict.verdict is Verdict.UNRESOLVED
    if verdict.needs_more_pairs is None:
        assert "more than 1,000 pairs" in verdict.why
        return
    assert verdict.needs_more_pairs % 2 == 0
    assert 2 <= verdict.needs_more_pairs <= MOST_PAIRS


@settings(deadline=None)
@given(st.floats(0.012, 0.1), st.floats(1e-3, 0.01), st.integers(6, 16), st.floats(0.005, 0.05))
def test_with_noise_a_difference_has_to_clear_more_and_more_pairs_are_asked_for(
    mean: float, spread: float, pairs: int, margin: float
) -> None:
    """Of what only noise leaves open; control: without it the same interval is called."""
    half = spread / math.sqrt(pairs)
    one = made(mean, half, spread, pairs, margin)
    verdict = judge(one)
    assert (verdict.verdict is Verdict.FASTER) == (mean - half > max(margin, math.log(1.005)))
    if mean - half > math.log(1.005):
        assert judge(made(mean, half, spread, pairs)).verdict is Verdict.FASTER
    if verdict.needs_more_pairs is not None:
        assert verdict.needs_more_pairs >= (more_pairs(replace(one, margin=0.0), CLEAR, ALIKE) or 0)


def test_a_noisy_host_is_told_that_pairs_alone_will_not_do() -> None:
    assert more_pairs(measured(1.0, 50.0, spread=0.6), CLEAR, ALIKE) is None
    assert judge(measured(1.0, 50.0, spread=0.6)) == Judgement(
        Verdict.UNRESOLVED, f"needs more than {MOST_PAIRS:,} pairs: they are 60.0% apart"
    )
    few = judge(measured(1.03, 4.0, spread=0.08))
    assert few.why == f"needs about {few.needs_more_pairs} more pairs"
    assert (few.needs_more_pairs or 0) > 100, "six pairs that are 8 % apart do not tell that 3 % are there"
    assert (judge(measured(1.03, 2.5, spread=0.02)).needs_more_pairs or 1000) <= 6, "the control"


def test_a_gain_above_the_ceiling_and_its_interval_is_suspect() -> None:
    assert largest_ratio(0.5, 2) == pytest.approx(4 / 3)
    assert largest_ratio(0.2) == pytest.approx(1.25)
    assert largest_ratio(1.0) == math.inf
    assert largest_ratio(0.0, 10) == 1
    found = judge(measured(1.4, 1.0), ceiling=largest_ratio(0.2))
    assert found.verdict is Verdict.SUSPECT
    assert found.why.startswith("1.40x is above 1.25x")
    assert judge(measured(1.255, 1.0), ceiling=1.25).verdict is Verdict.FASTER
    assert judge(measured(1.2, 1.0), ceiling=1.25).verdict is Verdict.FASTER


def test_an_mfu_above_the_best_product_of_matrices_is_suspect() -> None:
    assert judge(measured(1.2, 0.5), mfu=0.85, attainable_mfu=0.80).verdict is Verdict.SUSPECT
    assert judge(measured(1.2, 0.5), mfu=0.75, attainable_mfu=0.80).verdict is Verdict.FASTER


def test_what_is_not_comparable_outranks_everything() -> None:
    found = judge(measured(3.0, 0.1), not_comparable="label tokens: 812 against 790", ceiling=1.1, unsettled="clocks")
    assert found == Judgement(Verdict.NOT_COMPARABLE, "label tokens: 812 against 790")
    assert judge(measured(3.0, 0.1), unsettled="clocks").verdict is Verdict.UNRESOLVED
    assert judge(None) == Judgement(Verdict.UNRESOLVED, "fewer than two pairs count")


def gate(state: Any, kind: Any = "exact", **more: Any) -> Parity:
    return Parity(arm="b", against="a", kind=kind, state=state, **more)


def test_a_speedup_that_did_not_engage_voids_the_speed() -> None:
    idle = Engaged(name="fused_lora", state="not engaged", seen=0, expected=64, evidence="no fused kernel in the trace")
    assert (
        why_not_comparable(gate("same"), [idle]) == "fused_lora was not engaged (0 of 64): no fused kernel in the trace"
    )
    assert why_not_comparable(gate("same"), [Engaged(name="liger", state="taken out")]) == "liger was taken out"
    for state in ("engaged", "partial", "unknown"):
        assert why_not_comparable(gate("same"), [Engaged(name="liger", state=state)]) == ""


def test_updates_that_differ_void_the_speed_by_the_first_quantity() -> None:
    checks = (
        Check(gate="P1", quantity="loss of each token", observed=0, bound=1e-5, ok=True),
        Check(gate="P1", quantity="gradient", observed=0.025, bound=1e-4, ok=False),
    )
    assert why_not_comparable(gate("differs", checks=checks), []) == "of the gate, gradient failed"
    assert why_not_comparable(gate("differs", first_difference="gradient: 0.025"), []) == "gradient: 0.025"
    for state in ("same", "within precision"):
        assert why_not_comparable(gate(state), []) == ""
    assert why_not_comparable(gate("behavioural", "behavioural"), []) == ""


def test_a_gate_that_was_called_for_and_did_not_run_is_no_pass() -> None:
    said = "that both make the same updates was not checked: out of memory"
    for kind in ("exact", "numeric"):
        for why in ("out of memory", "out of memory."):  # an error's own period would stand inside of a sentence
            assert why_not_comparable(gate("not checked", kind, why_not_checked=why), []) == said
    for kind in ("unchanged", "behavioural"):
        assert why_not_comparable(gate("not checked", kind), []) == ""


def test_figures_of_other_definitions_and_of_failed_arms_are_not_compared() -> None:
    assert why_not_comparable(None, [], (1, 2)) == "the figures follow definitions 1 and 2"
    assert why_not_comparable(None, [], (2, 2)) == ""
    assert why_not_comparable(None, [], failed="out of memory at 65,536 tokens") == "out of memory at 65,536 tokens"


def test_memory() -> None:
    def held(allocated: int) -> Memory:
        return Memory(tokens=1, allocated=allocated, reserved=allocated)

    assert compare_memory(held(1100), held(1000)) == (MemoryVerdict.MORE, 1.1)
    assert compare_memory(held(800), held(1000)) == (MemoryVerdict.LESS, 0.8)
    assert compare_memory(held(1009), held(1000)) == (MemoryVerdict.SAME, 1.009)
    assert compare_memory(None, held(1000)) is None
    assert compare_memory(held(0), held(0)) is None
