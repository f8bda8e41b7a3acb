"""Promise: a mishap in one block of a pair voids it; what an arm does to its clocks by itself does not void it for ever."""

import math
from typing import Any

import pytest

from dynotune.bench.running.disturbed import (
    clocks_apart,
    disturbance,
    note_of_clocks,
    note_of_host,
    note_of_length,
    recompiled,
)
from dynotune.results.result import Block, Clocks


def block(arm: str = "a", mhz: float | None = 1755.0, recompiles: int = 0, **clocks: Any) -> Block:
    return Block(
        arm=arm, pair=0, first_step=1, steps=5, examples=5, documents=5, real_tokens=500, label_tokens=500,
        processed_tokens=500, seconds=1.0, device_seconds=0.99, recompiles=recompiles, clocks=Clocks(sm_mhz=mhz, **clocks),
    )  # fmt: skip


def test_quiet_pairs_count() -> None:
    assert disturbance(block(), block("b")) == ""
    assert disturbance(block(mhz=1755), block("b", mhz=1710)) == ""
    assert disturbance(block(mhz=None), block("b", mhz=None)) == ""
    both = {"throttled": ("heat, by software",), "other_processes": 1}
    assert disturbance(block(**both), block("b", **both)) == ""


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (block("b", recompiles=2), "2 recompilations in a block of b"),
        (block("b", recompiles=1), "1 recompilation in a block of b"),
        (block("b", throttled=("heat, by hardware",)), "clocks were lowered in one block only (heat, by hardware)"),
        (block("b", other_processes=1), "another process was on the GPU in one block only"),
        (block("b", mhz=1980), "clocks were 12.8% apart (1,755 and 1,980 MHz)"),
    ],
)
def test_a_mishap_in_one_block_voids_the_pair_in_either_order(other: Block, says: str) -> None:
    assert disturbance(block(), other) == says
    assert disturbance(other, block()).split("(")[0] == says.split("(")[0]


def test_a_block_that_runs_again_by_itself_may_be_void_again() -> None:
    assert recompiled(block("b", recompiles=1)) == "1 recompilation in a block of b"
    assert recompiled(block("b")) == ""


def test_the_power_cap_alone_voids_nothing() -> None:
    assert disturbance(block(throttled=("power cap",)), block("b")) == ""


def test_clocks_that_the_power_cap_lowered_are_the_arms_own_from_the_first_pair_on() -> None:
    capped, free = block(mhz=1550, throttled=("power cap",)), block("b", mhz=1896)
    assert disturbance(capped, free) == disturbance(free, capped) == ""
    assert disturbance(block(mhz=1550), block("b", mhz=1896, throttled=("power cap",))).startswith(
        "clocks were 22.3%"
    ), "the cap explains low clocks, not high ones"


def test_clocks_that_are_always_apart_are_the_arms_own() -> None:
    a, b = block(mhz=1755), block("b", mhz=1620)
    assert disturbance(a, b).startswith("clocks were 8.3% apart")
    apart = clocks_apart(a.clocks, b.clocks)
    assert apart == pytest.approx(math.log(1755 / 1620))
    assert disturbance(a, b, [apart]) == ""
    assert disturbance(a, b, [0.0, apart, 0.0]).startswith("clocks were")
    assert disturbance(a, block("b", mhz=1400), [apart] * 3).startswith("clocks were"), (
        "a block off its own way is void"
    )


def test_arms_at_different_clocks_are_said() -> None:
    """Of several in one sentence: of an attribution there were nineteen."""
    lower = [-0.08, -0.079, -0.081]
    assert note_of_clocks("a", {"b": lower, "c": [0.01]}) == "b runs at clocks 7.7% below those of a."
    assert note_of_clocks("a", {"b": [0.04], "c": lower, "d": [0.0]}) == "Clocks are not those of a: c -7.7%, b +4.1%."
    assert note_of_clocks("a", {"b": [0.01]}) == note_of_clocks("a", {"b": []}) == note_of_clocks("a", {}) == ""


def test_an_arm_that_waits_for_its_host_is_said() -> None:
    waits = [block().model_copy(update={"seconds": 1.05, "device_seconds": 1.0})] * 3
    fine = [block()] * 3
    assert note_of_host({"a": waits, "b": fine}) == (
        "a is host-bound: its blocks take 5.0% longer than the device's work in them."
    )
    assert note_of_host({"a": waits, "b": fine, "c": waits}).endswith("device's work in them: a 5.0%, c 5.0%.")
    assert note_of_host({"a": fine}) == note_of_host({"a": []}) == ""
    assert note_of_host({"a": [block().model_copy(update={"device_seconds": None})]}) == ""


def test_blocks_that_are_too_short_for_their_intervals_are_named_with_the_remedy() -> None:
    """The shortest, and how many times longer it would have to be. Control: half a second is enough."""

    def of(seconds: float) -> Block:
        return block().model_copy(update={"seconds": seconds})

    said = note_of_length({"slow": [of(2.0)], "fast": [of(0.2), of(0.2), of(9.0)]}, "give {times} times as many")
    assert said.startswith("Blocks of fast take 0.2 s, less than the 0.5 s")
    assert said.endswith(": give 3 times as many.")
    assert note_of_length({"slow": [of(2.0)], "fast": [of(0.5)]}, "{times}") == ""
    assert note_of_length({"none": []}, "{times}") == ""
