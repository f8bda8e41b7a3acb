"""Promise: on a ladder each speed-up stands behind those that it needs, and layouts for a kernel behind the kernel,
beside which an attribution measures them."""

from hypothesis import given
from hypothesis import strategies as st

from dynotune.bench.asking.arms import Arm
from dynotune.bench.asking.asked import attributed
from dynotune.bench.command import _needs, _word, in_an_order
from dynotune.config.sft import SFTConfig
from dynotune.speedups.attention import AttentionBackend
from dynotune.speedups.contract import Speedup
from dynotune.speedups.registry import speedups

NEEDS = {name: [*one.requires] for name, one in speedups().items()}


def test_a_shared_prompt_comes_behind_the_attention_that_computes_it() -> None:
    came = ["packed_execution", "shared_prompt", "fused_lora", "attention_varlen", "prefetch"]
    want = ["packed_execution", "attention_varlen", "shared_prompt", "fused_lora", "prefetch"]
    assert in_an_order(came, NEEDS) == want


@given(st.sets(st.sampled_from(sorted(NEEDS))).flatmap(lambda names: st.permutations(sorted(names))))
def test_each_is_there_once_and_behind_what_it_needs(names: list[str]) -> None:
    """Of any names, in any order; attention waits for nothing but what it needs."""
    needs = {name: [other for other in NEEDS[name] if other in names] for name in names}
    ordered = in_an_order(names, needs)
    assert sorted(ordered) == sorted(names)
    for place, name in enumerate(ordered):
        assert {*needs[name]} <= {*ordered[:place]}
        if isinstance(speedups()[name], AttentionBackend):
            before = [one for one in ordered[:place] if not isinstance(speedups()[one], AttentionBackend)]
            assert {*before} <= {other for one in ordered[: place + 1] for other in needs[one]} | _needed(
                needs, ordered
            )


def _needed(needs: dict[str, list[str]], ordered: list[str]) -> set[str]:
    """What attention needs, and what that needs in turn."""
    found: set[str] = set()
    left = [one for one in ordered if isinstance(speedups()[one], AttentionBackend)]
    while left:
        mine = [other for other in needs[left.pop()] if other not in found]
        found |= {*mine}
        left += mine
    return found


KERNEL = "attention_varlen"


def test_a_layout_that_is_worth_it_by_a_kernel_is_attributed_beside_it() -> None:
    """Both halves of it differ in what they name. Controls: without a kernel there is nothing that it could stand beside; no
    other one has such a need."""
    standing = ["packed_execution", "shared_prompt", KERNEL, "fused_lora"]
    needs = {name: _needs(name, standing) for name in standing}
    assert needs["shared_prompt"] == ["packed_execution", KERNEL]
    assert needs["fused_lora"] == needs[KERNEL] == _needs("shared_prompt", ["packed_execution", "shared_prompt"])
    changes = {name: {f"speedups.{name}": "auto"} for name in in_an_order(standing, needs)}
    arms, pairings = attributed(Arm("plain path", SFTConfig(speedups=dict.fromkeys(standing, "off"))), changes, needs)
    on = {arm.name: {name for name, word in arm.config.speedups.items() if word != "off"} for arm in arms}
    for one in pairings:
        if one.role != "whole":
            assert on[one.arm] - on[one.against] == {one.label}
            assert all("shared_prompt" not in on[name] or KERNEL in on[name] for name in (one.arm, one.against))


def test_what_may_be_left_out_by_itself_names_the_slot_without_which() -> None:
    """Of each that has an opinion on what else is taken: an attribution cannot ask it."""
    for one in speedups().values():
        assert (type(one).worth is not Speedup.worth) == (one.worth_beside is not None), one.name
        assert one.worth_beside is None or one.worth_beside in {other.slot for other in speedups().values()}


def test_a_layout_that_somebody_wants_without_a_kernel_is_attributed_too() -> None:
    """Control: nobody who wants another one keeps an attribution from leaving it out where it cannot be."""
    assert _word(SFTConfig(speedups={"shared_prompt": "on"}), "shared_prompt") == "on"
    assert _word(SFTConfig(), "shared_prompt") == "auto"
    assert _word(SFTConfig(speedups={"packed_execution": "on"}), "packed_execution") == "auto"
