"""Promise: the table of speed-ups quotes the newest effect that was measured here, in this kind of work, and no other."""

from pathlib import Path
from typing import Any

import pytest

from dynotune.measure.words import DEFINITIONS
from dynotune.results.effects import effects_of
from dynotune.results.history import History, machine_of
from dynotune.results.result import Engaged, Result, Verdict
from dynotune.speedups.table import Effect
from tests.bench import made

WORK = "sft of Qwen2ForCausalLM under LORA"


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "benches", lambda text: None)


SIZE = 7_615_616_512


def effect(history: History, name: str, work: str = WORK, size: int = SIZE, **machine: Any) -> Effect | None:
    here = machine_of(made.ab(machine={**made.MACHINE, **machine}))
    return effects_of(here, work, size, history)(name)


def test_added_last_is_what_is_quoted(history: History) -> None:
    kept, _ = history.keep(made.attribute())
    found = effect(history, "fused_lora")
    assert found == Effect(1.049, pytest.approx(1.045), pytest.approx(1.053), kept.name, kept.date)
    assert effect(history, "prefetch") is None


def test_the_newest_counts_also_where_an_older_one_was_kept_later(history: History) -> None:
    newer = (("fused_lora", 1.3, 1.25, 0.0),)
    history.keep(made.attribute(newer, date="2026-12-01T00:00:00+00:00"))
    history.keep(made.attribute())
    found = effect(history, "fused_lora")
    assert found is not None
    assert found.ratio == 1.25
    assert effect(history, "flash_attention") is not None  # of the older one, which the newer had not


@pytest.mark.parametrize(
    "other",
    [
        {"work": "dpo of Qwen2ForCausalLM under LORA"},
        {"device": "NVIDIA A100"},
        {"torch": "2.13.0"},
        {"dynotune": "0.2.0"},
    ],
)
def test_other_machines_versions_and_work_say_nothing(history: History, other: dict[str, str]) -> None:
    history.keep(made.attribute())
    assert effect(history, "fused_lora") is not None
    assert effect(history, "fused_lora", **other) is None


def test_a_model_of_another_size_says_nothing(history: History) -> None:
    """A bench of 0.5B stood under `effect here` in a run of 7B: one architecture, one kind of work."""
    history.keep(made.attribute())
    assert effect(history, "fused_lora", size=494_032_768) is None
    assert effect(history, "fused_lora", size=SIZE + 160_000_000) is not None, "an adapter of another rank"
    history.keep(made.attribute(model={"name": "a model that tells no size"}))
    assert effect(history, "fused_lora") is not None, "the older one"


def test_other_definitions_say_nothing(history: History) -> None:
    history.keep(made.attribute(definitions=DEFINITIONS + 1))
    assert effect(history, "fused_lora") is None


def without(result: Result, **change: Any) -> Result:
    return result.model_copy(update={"comparisons": tuple(c.model_copy(update=change) for c in result.comparisons)})


@pytest.mark.parametrize(
    "made_so",
    [
        made.attribute(withdrawn=made.withdrawn().withdrawn),
        without(made.attribute(), verdict=Verdict.SUSPECT),
        without(made.attribute(), verdict=Verdict.UNRESOLVED),
        without(made.attribute(), verdict=Verdict.NOT_COMPARABLE),
        made.attribute(parity=tuple(p.model_copy(update={"state": "differs"}) for p in made.attribute().parity)),
    ],
    ids=["withdrawn", "suspect", "unresolved", "not comparable", "parity"],
)
def test_what_is_no_effect(history: History, made_so: Result) -> None:
    """Where an arm makes other updates, what is held against it may stand: alone it does not."""
    history.keep(made_so)
    found = effect(history, "fused_lora")
    assert found is None or (found.ratio == 1.049 and any(one.state == "differs" for one in made_so.parity))


@pytest.mark.parametrize("how", ["off", "could not be"])
def test_updates_that_nobody_compared_have_no_effect(history: History, how: str) -> None:
    """`--parity off`, and a gate that could not compare. Control: an older result that was checked is quoted instead."""
    checked = made.attribute()
    unchecked = tuple(one.model_copy(update={"state": "not checked", "checks": ()}) for one in checked.parity)
    newer = checked.model_copy(
        update={"parity": () if how == "off" else unchecked, "date": "2026-12-01T00:00:00+00:00"}
    )
    history.keep(newer)
    assert effect(history, "fused_lora") is None
    kept, _ = history.keep(checked)
    found = effect(history, "fused_lora")
    assert found is not None
    assert found.bench == kept.name


@pytest.mark.parametrize(("pairs", "quoted"), [(2, False), (5, False), (6, True)])
def test_few_pairs_have_no_effect(history: History, pairs: int, quoted: bool) -> None:
    result = made.attribute()
    few = tuple(one.model_copy(update={"log_ratios": one.log_ratios[:pairs]}) for one in result.comparisons)
    history.keep(result.model_copy(update={"comparisons": few}))
    assert (effect(history, "fused_lora") is not None) is quoted


def test_what_was_not_engaged_has_no_effect(history: History) -> None:
    result = made.ladder()
    out = Engaged(name="fused_lora", state="not engaged", seen=0, expected=64)
    arms = tuple(
        arm.model_copy(update={"engaged": tuple(out if one.name == "fused_lora" else one for one in arm.engaged)})
        for arm in result.arms
    )
    history.keep(result.model_copy(update={"arms": arms}))
    assert effect(history, "fused_lora") is None
    assert effect(history, "packed_execution") is not None


@pytest.mark.parametrize(
    ("first", "value", "ratio"),
    [("auto", "off", 1 / 1.07), ("off", "on", 1.07), ("auto", "on", None), ("off", "off", None)],
)
def test_two_configurations_that_differ_in_one_speed_up(
    history: History, first: str, value: str, ratio: float | None
) -> None:
    arms = (
        made.arm("a.yaml", 14_000, config={"speedups": {"fused_lora": first}}),
        made.arm("b.yaml", 15_000, settings={"speedups.fused_lora": value}),
    )
    history.keep(made.ab(arms=arms))
    found = effect(history, "fused_lora")
    assert (found and found.ratio) == (pytest.approx(ratio) if ratio else None)
    assert found is None or found.low < found.ratio < found.high


def test_a_speed_up_that_has_a_key_of_its_own(history: History) -> None:
    arms = (
        made.arm("a.yaml", 14_000, config={"packed_execution": "auto", "speedups": {}}),
        made.arm("b.yaml", 15_000, settings={"packed_execution": "off"}),
    )
    history.keep(made.ab(arms=arms))
    found = effect(history, "packed_execution")
    assert found is not None
    assert found.ratio == pytest.approx(1 / 1.07)


@pytest.mark.parametrize("told", [True, False])
def test_shared_prompts_have_no_effect_by_tokens_that_were_computed(history: History, told: bool) -> None:
    """Of which they have fewer for the same documents: results of before do not tell these. Control: today's do."""
    result = made.attribute()
    named = [
        one.model_copy(update={"label": "shared_prompt"}) if one.label == "fused_lora" else one
        for one in result.comparisons
    ]
    arms = [
        arm.model_copy(
            update={"blocks": tuple(b.model_copy(update={"sequence_tokens": told * b.real_tokens}) for b in arm.blocks)}
        )
        for arm in result.arms
    ]
    history.keep(result.model_copy(update={"comparisons": tuple(named), "arms": tuple(arms)}))
    assert (effect(history, "shared_prompt") is not None) is told
    assert effect(history, "packed_execution") is not None


def test_two_configurations_that_differ_in_more_are_no_effect_of_one(history: History) -> None:
    settings = {"speedups.fused_lora": "off", "learning_rate": 1.0}
    history.keep(made.ab(arms=(made.arm("a.yaml", 14_000), made.arm("b.yaml", 15_000, settings=settings))))
    assert effect(history, "fused_lora") is None


def test_nothing_is_read_before_it_is_asked_for(history: History) -> None:
    asked = effects_of(machine_of(made.ab()), WORK, SIZE, history)
    history.keep(made.attribute())
    assert asked("fused_lora") is not None
