"""Promise: where two arms of an attribution differ in a speed-up that their comparison does not name, that is said."""

from dataclasses import replace
from pathlib import Path

from dynotune.bench.asking.arms import Arm
from dynotune.bench.asking.asked import ALL, Asked, attributed
from dynotune.bench.asking.schedule import Rules
from dynotune.bench.judging.unnamed import notes_of_unnamed
from dynotune.config.sft import SFTConfig

KERNEL, LAYOUT, OTHER = "attention_varlen", "shared_prompt", "prefetch"
CHANGES = {name: {f"speedups.{name}": "auto"} for name in (KERNEL, LAYOUT, OTHER)}
ARMS, PAIRINGS = attributed(Arm("plain path", SFTConfig(speedups=dict.fromkeys(CHANGES, "off"))), CHANGES)
ASKED = Asked("attribute", ARMS, PAIRINGS, Rules(), 5, 0, Path("out"), "dynotune bench")
AS_ASKED = {arm.name: {name for name, word in arm.config.speedups.items() if word != "off"} for arm in ARMS}


def test_what_was_lost_with_another_is_in_the_others_figure() -> None:
    """Controls: where each arm has what it asks for nothing is said; nor of arms that were not measured, nor where the two
    arms are what somebody asked for."""
    lost = f"all but {KERNEL}"
    without = {**AS_ASKED, lost: AS_ASKED[lost] - {LAYOUT}}
    [note] = notes_of_unnamed(ASKED, without)
    assert note == f"{KERNEL} added last has more than its name in its figure: {LAYOUT} only in {ALL}"
    assert len(f"note: {note}") <= 160, "two lines of a terminal"
    assert notes_of_unnamed(ASKED, AS_ASKED) == []
    assert notes_of_unnamed(ASKED, {arm: names for arm, names in without.items() if arm != lost}) == []
    assert notes_of_unnamed(replace(ASKED, kind="ab"), without) == []


def test_what_came_in_the_place_of_another_is_told_with_its_arm() -> None:
    instead = {**AS_ASKED, "plain path": {"attention_flex"}}
    notes = notes_of_unnamed(ASKED, instead)
    assert f"{OTHER} alone has more than its name in its figure: attention_flex only in plain path" in notes
    assert len(notes) == 4  # of all, and of each alone; none that adds one last


def test_a_key_that_decides_about_speed_ups_names_what_it_changes() -> None:
    arms, pairings = attributed(Arm("base", SFTConfig()), {"a": {"bf16": True}, "b": {"packed_execution": "off"}})
    asked = replace(ASKED, arms=arms, pairings=pairings)
    assert notes_of_unnamed(asked, {arm.name: {KERNEL} if arm.config.bf16 else set() for arm in arms}) == []
