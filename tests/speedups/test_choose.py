"""Promise: what is chosen can be together and is what was asked for; what is not says why."""

import pytest
from hypothesis import given

from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.speedups.choose import candidates, conflict, decide
from dynotune.speedups.contract import Kind, No, Order
from tests.speedups.registries import Registry, registries
from tests.speedups.toys import NOWHERE, Toy, decided


@given(registries())
def test_of_any_registry_a_choice_holds_together(registry: Registry) -> None:
    on = {name for name in registry.toys if registry.setting(name) == "on"}
    try:
        decisions = {one.name: one for one in decided(*registry.toys.values())}
    except ConfigError:
        assert on, "nobody asked, and it is an error"
        return
    chosen = {name for name, one in decisions.items() if one.no is None}
    assert on <= chosen
    for name in chosen:
        toy = registry.toys[name]
        assert registry.setting(name) != "off"
        assert toy.no is None
        assert set(toy.requires) <= chosen
        assert not any(conflict(toy, registry.toys[other]) for other in chosen - {name})
    for name in set(decisions) - chosen:
        one, toy = decisions[name], registry.toys[name]
        assert one.no is not None
        if one.behind is not None:
            assert one.behind.name in chosen
            assert conflict(toy, one.behind.speedup)
        elif registry.setting(name) != "off" and toy.no is None:
            assert "it needs" in one.no.reason


@given(registries())
def test_what_can_be_together_is_never_refused_where_it_is_asked_for(registry: Registry) -> None:
    on = {name for name in registry.toys if registry.setting(name) == "on"}
    needed = registry.with_needs(on)
    if needed <= set(registry.toys) and registry.together(needed):
        assert needed <= {one.name for one in decided(*registry.toys.values()) if one.no is None}


def test_of_a_slot_the_first_by_rank_is_taken_and_the_others_stand_back() -> None:
    decisions = {one.name: one for one in decided(Toy("a", slot="s", rank=2), Toy("b", slot="s", rank=1))}
    assert decisions["b"].no is None
    assert decisions["a"].behind is decisions["b"]
    assert decisions["a"].no == No("b runs in its place", expected=True)


def test_what_is_on_goes_before_rank_and_so_does_what_it_needs() -> None:
    chosen = decided(
        Toy("a", slot="s", rank=2), Toy("b", slot="s", rank=1), Toy("c", requires=("a",), asks=("on", "c: on"))
    )
    assert {one.name: one.no is None for one in chosen} == {"a": True, "b": False, "c": True}


def test_two_that_are_on_and_cannot_be_together_are_an_error_that_names_both_keys() -> None:
    with pytest.raises(ConfigError, match=r"`key_[ab]: on` and `key_[ab]: on` cannot be together"):
        decided(Toy("a", slot="s", asks=("on", "key_a: on")), Toy("b", slot="s", asks=("on", "key_b: on")))


@pytest.mark.parametrize(
    "why",
    [
        {"no": No("there is no kernel here", "install one")},
        {"requires": ("missing",)},
        {"requires": ("dropped",)},
    ],
)
def test_what_is_on_and_cannot_be_is_an_error_with_key_reason_and_a_way_on(why: dict[str, object]) -> None:
    other = Toy("dropped", no=No("it cannot be"))
    with pytest.raises(
        ConfigError, match=r"`toy_key: yes`: toy cannot run: .*Take `toy_key` out, or write `speedups: \{toy: auto\}`"
    ):
        decided(Toy("toy", asks=("on", "toy_key: yes"), **why), other)  # type: ignore[arg-type]
    assert decided(Toy("toy", **why), other)[1].no is not None  # type: ignore[arg-type]


def test_one_that_lost_its_place_to_one_that_cannot_be_is_taken_itself() -> None:
    """`b` would win, but what it needs is off."""
    chosen = {
        one.name: one.no is None
        for one in decided(
            Toy("a", conflicts=("b",), rank=1), Toy("b", requires=("c",)), Toy("c", asks=("off", "c: off"))
        )
    }
    assert chosen == {"a": True, "b": False, "c": False}


def test_what_failed_here_before_is_not_tried_unless_it_is_on() -> None:
    refused = No("it failed on this machine")
    [one] = decided(Toy("toy"), refusal=lambda speedup, context: refused)
    assert one.no == refused
    [one] = decided(Toy("toy", asks=("on", "k: on")), refusal=lambda speedup, context: refused)
    assert one.no is None


def test_speedups_wins_over_a_key_which_wins_over_the_default() -> None:
    toy, numeric = Toy("packed_execution", asks=("on", "k: on")), Toy("fp8", kind=Kind.NUMERIC)
    registry = {one.name: one for one in (toy, numeric)}
    config = SFTConfig(speedups={"packed_execution": "off"})
    settings = {one.name: (one.setting, one.asked_by) for one in decide(config, NOWHERE, registry)}
    assert settings == {"packed_execution": ("off", "speedups: {packed_execution: off}"), "fp8": ("off", "")}
    assert decide(SFTConfig(), NOWHERE, registry)[0].asked_by == "k: on"


def test_candidates_come_in_the_order_of_installation() -> None:
    toys = [Toy("a", order=Order.STEP), Toy("b", order=Order.LORA), Toy("c", order=Order.KERNELS), Toy("d", no=No("x"))]
    assert [one.name for one in candidates(decided(*toys))] == ["c", "b", "a"]
