"""Promise: arms and pairings say what a change does alone and added last, whatever it needs; two arms are held apart by
every key that changes what is measured, and by none that only says what is shown."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.bench.asking.arms import Arm, between, in_words, settings_of
from dynotune.bench.asking.asked import ALL, Half, attributed, attributed_on_a_ladder, changed, ladder, sweep, two
from dynotune.bench.running.cast import tier_for
from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.results.result import Tier
from dynotune.speedups.activation import asked_policy
from dynotune.speedups.registry import speedups

BASE = Arm("base", SFTConfig())
OFF = {name: {f"speedups.{name}": "off"} for name in ("packed_execution", "fused_lora", "prefetch", "fused_optimizer")}


def test_variables_are_a_difference_by_name_and_keep_arms_in_processes_of_their_own() -> None:
    """Control: the same variables in another order are none."""
    one, other = (SFTConfig(env={"NCCL_ALGO": value, "WANDB_MODE": "offline"}) for value in ("Ring", "Tree"))
    assert settings_of(one, other) == {"env": "NCCL_ALGO=(hidden)"}
    assert settings_of(one, SFTConfig(env={"WANDB_MODE": "offline"})) == {"env": "NCCL_ALGO not set"}
    assert "Tree" not in in_words(settings_of(one, other))
    assert tier_for([Arm("a", one), Arm("b", other)], on_gpu=False)[0] is Tier.RESIDENT
    same = SFTConfig(env=dict(reversed(one.env.items())))
    assert not between(one, same).changed


def test_one_change_is_one_arm_against_the_base() -> None:
    arms, pairings = attributed(BASE, {"batch": {"per_device_train_batch_size": 4}})
    assert [arm.name for arm in arms] == ["base", "batch"]
    assert [tuple(one) for one in pairings] == [("batch", "base", "batch", "whole")]
    assert arms[1].config.per_device_train_batch_size == 4


def test_each_change_is_measured_alone_and_added_last() -> None:
    arms, pairings = attributed(BASE, {name: OFF[name] for name in ("packed_execution", "prefetch", "fused_optimizer")})
    assert len(arms) == 2 * 3 + 2
    alone = {one.label: (one.arm, one.against) for one in pairings if one.role == "alone"}
    last = {one.label: (one.arm, one.against) for one in pairings if one.role == "last"}
    assert alone.keys() == last.keys() == {"packed_execution", "prefetch", "fused_optimizer"}
    assert alone["prefetch"] == ("prefetch", "base")
    assert last["prefetch"] == (ALL, "all but prefetch")
    by_name = {arm.name: arm.config for arm in arms}
    assert by_name["all but prefetch"].speedups == {"packed_execution": "off", "fused_optimizer": "off"}
    assert by_name[ALL].speedups == dict.fromkeys(("packed_execution", "prefetch", "fused_optimizer"), "off")


def test_of_two_changes_all_but_one_is_the_other_alone() -> None:
    arms, pairings = attributed(BASE, {name: OFF[name] for name in ("prefetch", "fused_optimizer")})
    assert [arm.name for arm in arms] == ["base", ALL, "prefetch", "fused_optimizer"]
    assert (ALL, "fused_optimizer", "prefetch", "last") in [tuple(one) for one in pairings]


def test_a_change_that_needs_another_stands_beside_it_and_is_not_in_its_figure() -> None:
    """Neither alone nor as the last one: both arms of a pair differ in one change."""
    changes = {name: OFF[name] for name in ("packed_execution", "fused_lora", "prefetch")}
    arms, pairings = attributed(BASE, changes, {"fused_lora": ["packed_execution"]})
    alone = {one.label: (one.arm, one.against) for one in pairings if one.role == "alone"}
    assert alone["fused_lora"] == ("packed_execution + fused_lora", "packed_execution")
    by_name = {arm.name: arm.config.speedups for arm in arms}
    last = {one.label: (by_name[one.arm], by_name[one.against]) for one in pairings if one.role == "last"}
    assert last["packed_execution"] == ({"packed_execution": "off", "prefetch": "off"}, {"prefetch": "off"})
    assert last["fused_lora"] == (dict.fromkeys(changes, "off"), {"packed_execution": "off", "prefetch": "off"})
    for one in pairings:
        if one.role != "whole":
            assert {*by_name[one.arm]} - {*by_name[one.against]} == {one.label}


def test_the_halves_of_an_attribution_are_all_of_it_and_the_second_leaves_the_base_out() -> None:
    """Each comparison of `--attribute` is in one of them, between the same configurations."""
    changes = {name: OFF[name] for name in ("packed_execution", "fused_lora", "prefetch", "fused_optimizer")}
    needs = {"fused_lora": ["packed_execution"]}

    def compared(only: Half | None) -> set[tuple[str, str, str, str]]:
        arms, pairings = attributed(BASE, changes, needs, only)
        names = [arm.name for arm in arms]
        assert len(set(names)) == len(names)
        assert {name for one in pairings for name in (one.arm, one.against)} == {*names}, (
            "no arm is measured for nothing"
        )
        by_name = {arm.name: str(sorted(arm.config.speedups.items())) for arm in arms}
        return {(by_name[one.arm], by_name[one.against], one.label, one.role) for one in pairings}

    alone, last = compared("alone"), compared("last")
    assert alone | last == compared(None)
    assert not alone & last
    assert attributed(BASE, changes, needs, "alone")[0][0] is BASE
    arms, _ = attributed(BASE, changes, needs, "last")
    assert arms[0].name == ALL, "against which it is measured how far two equal arms are apart"
    assert BASE not in arms


@given(st.integers(2, 7))
def test_names_of_arms_are_unlike_and_pairings_name_arms(count: int) -> None:
    changes = {name: {f"speedups.{name}": "off"} for name in list(speedups())[:count]}
    for arms, pairings in (attributed(BASE, changes), ladder(BASE, changes)):
        names = [arm.name for arm in arms]
        assert len(set(names)) == len(names)
        assert {one.arm for one in pairings} | {one.against for one in pairings} <= set(names)
        assert not any(one.arm == one.against for one in pairings)


def test_each_step_of_a_ladder_is_held_against_the_one_before() -> None:
    arms, pairings = ladder(BASE, {name: OFF[name] for name in ("prefetch", "fused_optimizer")})
    assert [arm.name for arm in arms] == ["base", "+ prefetch", "+ fused_optimizer"]
    assert arms[-1].config.speedups == {"prefetch": "off", "fused_optimizer": "off"}
    steps = [(one.arm, one.against) for one in pairings if one.role == "step"]
    assert steps == [("+ prefetch", "base"), ("+ fused_optimizer", "+ prefetch")]


def test_an_attribution_on_a_ladder_says_what_both_say_with_each_arm_once() -> None:
    needs = {"fused_lora": ["packed_execution"]}
    arms, pairings = attributed_on_a_ladder(BASE, OFF, needs)
    config = {arm.name: arm.config.speedups for arm in arms}
    assert len({tuple(sorted(each.items())) for each in config.values()}) == len(arms), "no arm is there twice"

    def seen(found: object) -> set[tuple[object, ...]]:
        """By what stands in the arms, whatever they are called."""
        walked, between_ = found  # type: ignore[misc]
        by_name = {arm.name: tuple(sorted(arm.config.speedups.items())) for arm in walked}
        return {(one.role, one.label, by_name[one.arm], by_name[one.against]) for one in between_}

    both = seen((arms, pairings))
    assert both == seen(attributed(BASE, OFF, needs)) | seen(ladder(BASE, OFF))
    assert len(arms) < len(attributed(BASE, OFF, needs)[0]) + len(ladder(BASE, OFF)[0]) - 2
    assert [arm.name for arm in arms[:5]] == ["base", *(f"+ {name}" for name in OFF)]
    assert attributed_on_a_ladder(BASE, {"prefetch": OFF["prefetch"]}) == attributed(
        BASE, {"prefetch": OFF["prefetch"]}
    )


def test_a_sweep_has_an_arm_a_value_and_needs_two() -> None:
    arms, pairings = sweep(SFTConfig(), "micro_batch_tokens", [1024, 2048, 4096])
    assert [arm.config.micro_batch_tokens for arm in arms] == [1024, 2048, 4096]
    assert all(one.against == "micro_batch_tokens: 1024" for one in pairings)
    with pytest.raises(ConfigError, match="needs two values"):
        sweep(SFTConfig(), "micro_batch_tokens", [1024])
    with pytest.raises(ConfigError, match="given twice"):
        sweep(SFTConfig(), "micro_batch_tokens", [1024, 1024])


def test_arms_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="Both arms"):
        two(BASE, Arm("base", SFTConfig(seed=1)))


def test_a_changed_speed_up_leaves_the_others_as_they_are() -> None:
    config = SFTConfig(speedups={"prefetch": "off"})
    assert changed(config, {"speedups.fused_lora": "on"}).speedups == {"prefetch": "off", "fused_lora": "on"}


def test_what_is_shown_and_kept_is_no_difference() -> None:
    a = SFTConfig(output_dir="x", report_to="none", save_steps=5, run_name="a")
    b = SFTConfig(output_dir="y", report_to="wandb", save_steps=7, run_name="b")
    assert not between(a, b).changed
    assert between(a, b.replace(learning_rate=1e-3)).changed.keys() == {"learning_rate"}


def test_settings_name_each_speed_up_by_itself() -> None:
    a, b = SFTConfig(speedups={"prefetch": "off"}), SFTConfig(speedups={"fused_lora": "on"}, bf16=False)
    assert settings_of(a, b) == {"speedups.fused_lora": "on", "speedups.prefetch": "auto", "bf16": False}
    assert in_words({"bf16": False, "micro_batch_tokens": 64}) == "bf16: false, micro_batch_tokens: 64"


@pytest.mark.parametrize(
    ("change", "on_gpu", "tier"),
    [
        ({"speedups": {"packed_execution": "off"}}, True, Tier.SWITCH),
        ({"micro_batch_tokens": 2048}, True, Tier.SWITCH),
        ({"speedups": {"compiled_layers": "on"}}, True, Tier.FRESH),
        ({"speedups": {"compiled_layers": "on"}}, False, Tier.RESIDENT),
        ({"per_device_train_batch_size": 2}, False, Tier.RESIDENT),
        ({"lora_r": 8, "use_peft": True}, True, Tier.FRESH),
        ({"gpus": 2}, False, Tier.RESIDENT),
    ],
)
def test_what_cannot_change_in_a_process_has_one_of_its_own(
    change: dict[str, object], on_gpu: bool, tier: Tier
) -> None:
    found, why = tier_for([BASE, Arm("other", SFTConfig(**change))], on_gpu)
    assert found is tier
    assert why


@pytest.mark.parametrize(
    ("keys", "policy"),
    [
        ({"gradient_checkpointing": True}, "full"),
        ({"activation_memory": "selective"}, "selective"),
        ({"activation_memory": "full", "gradient_checkpointing": True}, "full"),
        ({"activation_offloading": True}, "offload"),
    ],
    ids=str,
)
def test_what_a_key_asks_of_activations_can_be_a_change(keys: dict[str, Any], policy: str) -> None:
    """An arm without it is no contradiction of its author's: `off` wins, and everything is kept."""
    name = f"activation_{policy}"
    plain = Arm("plain", SFTConfig(**keys, speedups={name: "off", "packed_execution": "off"}))
    changes: dict[str, Any] = {one: {f"speedups.{one}": "auto"} for one in (name, "packed_execution")}
    for walk in (attributed, ladder, attributed_on_a_ladder):
        arms, _ = walk(plain, changes)
        held = {arm.name: asked_policy(arm.config) for arm in arms}
        assert held["plain"] == ("none", f"speedups: {{{name}: off}}")
        assert any(one is not None and one[0] == policy for one in held.values())
