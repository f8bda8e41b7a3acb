"""Promise: on a ladder each speed-up stands behind those that it needs, and layouts for a kernel behind the kernel."""

from hypothesis import given
from hypothesis import strategies as st

from dynotune.bench.command import in_an_order
from dynotune.speedups.attention import AttentionBackend
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
