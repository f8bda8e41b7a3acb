"""Promise: each mistake of the protocol's table is stopped by the gate and named, and what is the same passes."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from dynotune.bench.asking.arms import Arm
from dynotune.bench.parity.asking import Processes, in_this_process, share
from dynotune.bench.parity.exact import exact
from dynotune.bench.parity.gate import _Gate, check, in_words, short
from dynotune.bench.parity.question import Answer, HeldOut, Question
from dynotune.results.comparable import kind_in_words
from dynotune.results.result import Check, Parity
from dynotune.speedups.contract import Kind
from tests.bench import made
from tests.bench.parity.arms import LORA, checked, dpo, sft
from tests.bench.parity.planted import BUGS, HARMLESS, NAME, planted

MEANS = "mean of micro-batch means"
ON: dict[str, Any] = {"speedups": {NAME: "on"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parity")


def failing(parity: Parity) -> list[str]:
    return [one.quantity for one in parity.checks if not one.ok]


SHOWS = {
    "label mask off by one": "loss of each token",
    "prompt tokens in the loss": "label tokens",
    "mean of micro-batch means": "loss of the step",
    "last micro-batch dropped": "loss of the step",
    "packing leaks, continuous positions": "loss of each token",
    "packing leaks, positions reset": "loss of each token",
}
"""By mistake, the first quantity in which it shows."""


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_mistake_is_stopped_and_named(bug: str, folder: Path, tmp_path: Path) -> None:
    with planted(BUGS[bug]):
        parity = checked(sft(folder, "a"), sft(folder, "b", **ON), tmp_path)
    assert (parity.kind, parity.state) == ("exact", "differs")
    assert failing(parity)[0] == SHOWS[bug]
    assert parity.first_difference.startswith(SHOWS[bug])
    assert "gradient" in failing(parity)


@pytest.mark.parametrize("same", HARMLESS)
def test_what_is_the_same_mathematics_passes(same: str, folder: Path, tmp_path: Path) -> None:
    with planted(HARMLESS[same]):
        parity = checked(sft(folder, "a"), sft(folder, "b", **ON), tmp_path)
    assert (parity.state, failing(parity), parity.first_difference) == ("same", [], "")


@pytest.mark.parametrize(
    "settings",
    [
        {"packed_execution": "off"},
        {"attn_implementation": "eager", "packed_execution": "off"},
        {"micro_batch_tokens": 512},
        {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
        pytest.param({"optim": "adamw_torch", "speedups": {"fused_optimizer": "off"}}, marks=pytest.mark.long),
    ],
    ids=["packed isolated", "eager instead of SDPA", "another split", "accumulation", "optimizer not fused"],
)
def test_settings_that_only_execute_otherwise_pass(settings: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    base = {"packed_execution": "off"} if "attn_implementation" in settings else {}
    parity = checked(sft(folder, "a", **base), sft(folder, "b", **settings), tmp_path)
    assert (parity.kind, parity.state, failing(parity)) == ("exact", "same", [])
    assert next(one for one in parity.checks if one.quantity == "gradient").observed < 1e-5


def test_an_adapter_whose_second_factor_is_zero_shows_the_gradient_of_the_first(folder: Path, tmp_path: Path) -> None:
    parity = checked(sft(folder, "a", **LORA), sft(folder, "b", **LORA, packed_execution="off"), tmp_path)
    assert parity.state == "same"
    answer = in_this_process(sft(folder, "a", **LORA), [Question("float32")], tmp_path)[0]
    of_A = [name for name in answer.each("gradient") if "lora_A" in name]
    assert len(of_A) == 14
    assert all(answer.facts["squares"][f"gradient/{name}"] > 0 for name in of_A)


@pytest.mark.parametrize("adapter", [{}, LORA], ids=["full", "lora"])
def test_a_prompt_that_stands_once_is_the_same(adapter: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    off = {"speedups": {"shared_prompt": "off"}}
    parity = checked(dpo(folder, "a", **adapter, **off), dpo(folder, "b", **adapter), tmp_path)
    assert (parity.kind, parity.state, failing(parity)) == ("exact", "same", [])
    assert "log-probability of each answer" in [one.quantity for one in parity.checks]


def test_a_leak_between_pairs_is_stopped(folder: Path, tmp_path: Path) -> None:
    off = {"shared_prompt": "off"}
    with planted(BUGS["packing leaks, positions reset"]):
        parity = checked(
            dpo(folder, "a", speedups=off, **LORA), dpo(folder, "b", speedups={**off, NAME: "on"}, **LORA), tmp_path
        )
    assert parity.first_difference.startswith("log-probability of each answer differs by")


def test_identical_arms_need_no_gate(folder: Path, tmp_path: Path) -> None:
    parity = checked(sft(folder, "a"), sft(folder, "b", run_name="again"), tmp_path)
    assert (parity.kind, parity.state, parity.checks) == ("unchanged", "same", ())


@pytest.mark.parametrize("settings", [{"learning_rate": 2.04e-5}, {"per_device_train_batch_size": 4}])
def test_another_result_is_behavioural_by_its_key(settings: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    parity = checked(sft(folder, "a"), sft(folder, "b", **settings), tmp_path)
    assert (parity.kind, parity.state) == ("behavioural", "behavioural")
    assert next(iter(settings)) in parity.why_not_checked


@pytest.mark.long
def test_bfloat16_is_numeric_and_within_the_plain_paths_own_error(folder: Path, tmp_path: Path) -> None:
    parity = checked(sft(folder, "a"), sft(folder, "b", bf16=True), tmp_path)
    assert (parity.kind, parity.state, failing(parity)) == ("numeric", "within precision", [])
    assert {one.gate for one in parity.checks} == {"P2", "P3"}


def test_a_mistake_in_bfloat16_is_not_within_precision(folder: Path, tmp_path: Path) -> None:
    with planted(BUGS[MEANS]):
        parity = checked(sft(folder, "a", bf16=True), sft(folder, "b", bf16=True, **ON), tmp_path)
    assert parity.state == "differs"
    assert ("P2", False) in [(one.gate, one.ok) for one in parity.checks if one.quantity == "error of the gradient"]


@pytest.mark.parametrize(("bug", "state"), [(MEANS, "differs"), (None, "same")])
def test_what_has_no_float32_path_is_compared_in_its_own_precision(
    bug: str | None, state: str, folder: Path, tmp_path: Path
) -> None:
    plant = BUGS[bug] if bug else HARMLESS["positions not reset"]
    with planted(plant, only_bfloat16=True):
        parity = checked(sft(folder, "a", bf16=True), sft(folder, "b", bf16=True, **ON), tmp_path)
        alone = checked(sft(folder, "a"), sft(folder, "b", **ON), tmp_path)
    assert parity.state == state
    assert {one.gate for one in parity.checks if not one.ok} == ({"P2"} if bug else set())
    assert all("in float32 there is no planted" in one.detail for one in parity.checks if one.gate == "P2")
    assert (alone.state, alone.why_not_checked) == ("not checked", "planted: its kernel takes bfloat16")


def test_what_fails_by_itself_is_not_checked_and_says_why(folder: Path, tmp_path: Path) -> None:
    parity = checked(sft(folder, "a"), sft(folder, "b", speedups={"attention_fa3": "on"}), tmp_path)
    assert parity.state == "not checked"
    assert "attention_fa3" in parity.why_not_checked


def test_a_difference_that_no_probe_had_is_said(folder: Path, tmp_path: Path) -> None:
    said: list[str] = []
    arms = sft(folder, "a"), sft(folder, "b", speedups={"attention_fa3": "off"})
    assert check(*arms, tmp_path, say=said.append, ask=in_this_process).state == "same"
    assert said[0] == "note: attention_fa3 stood in no probe, so of that nothing was compared"
    assert re.search(r"\(exact\): P1, P2 took \d+\.\d s \(one step \d+\.\d s\); seed", said[-1])


def test_bfloat16_is_no_rounding_of_float32(folder: Path, tmp_path: Path) -> None:
    arms = sft(folder, "a"), sft(folder, "b", bf16=True)
    one, two = (in_this_process(arm, [Question("own", "own")], tmp_path)[0] for arm in arms)
    assert {"loss of each token", "gradient"} <= {each.quantity for each in exact(one, two) if not each.ok}


@pytest.mark.long
def test_behavioural_arms_are_compared_on_held_out_rows(folder: Path, tmp_path: Path) -> None:
    arms = sft(folder, "a"), sft(folder, "b", learning_rate=1e-3, per_device_train_batch_size=4)
    parity = checked(*arms, tmp_path, full=True)
    assert (parity.kind, parity.state) == ("behavioural", "behavioural")
    assert {name: len(values) for name, values in parity.held_out.items()} == {"a": 3, "b": 3}
    assert max(parity.held_out["b"]) < min(parity.held_out["a"])
    assert [one.quantity for one in parity.checks] == ["held-out loss"]


@pytest.mark.long
def test_held_out_losses_are_measured_unasked_where_rows_are_held_out(folder: Path, tmp_path: Path) -> None:
    """Controls: without such rows, and where there is no time, they are not, and the reason is told."""
    arms = [sft(folder, name, test_split_size=0.2, learning_rate=rate) for name, rate in (("a", 1e-4), ("b", 1e-3))]
    parity = checked(*arms, tmp_path / "one")
    assert {name: len(values) for name, values in parity.held_out.items()} == {"a": 3, "b": 3}
    short = checked(*arms, tmp_path / "two", allowance=0.0)
    assert (short.state, short.held_out) == ("behavioural", {})
    assert "3 seeds of both arms would take about" in short.why_not_checked


def test_without_rows_that_are_held_out_the_reason_is_told(folder: Path, tmp_path: Path) -> None:
    parity = checked(sft(folder, "a"), sft(folder, "b", learning_rate=1e-3), tmp_path)
    assert (parity.state, parity.held_out) == ("behavioural", {})
    held = "no rows are held out (`test_split_size`, `eval_dataset_name`)"
    assert parity.why_not_checked == f"{held}; what differs is learning_rate"


def answering(loss: dict[str, float]) -> Any:
    """Arms whose held-out losses are known."""

    def ask(arm: Arm, asked: Any, folder: Path) -> list[Answer]:
        assert {type(one) for one in asked} == {HeldOut}
        return [Answer({"held_out": loss[arm.name] + 0.01 * one.seed, "share": 0.5, "steps": 3}) for one in asked]

    return ask


def test_a_numeric_speed_up_is_told_with_its_held_out_loss_under_its_own_word(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controls: without held-out rows the line says that the loss was not measured; a trajectory that differs stops it
    before seeds are spent; an arm that the protocol asks no such loss of does not miss it."""
    monkeypatch.setattr(_Gate, "_courses", lambda gate: None)
    asked = answering({"a": 2.0, "b": 2.1})

    def told(**rows: Any) -> Parity:
        with planted(HARMLESS["positions not reset"], calls_itself=Kind.NUMERIC):
            return check(
                sft(folder, "a", **rows), sft(folder, "b", **rows, **ON), tmp_path, say=lambda line: None, ask=asked
            )

    def said(parity: Parity) -> str:
        parity = parity.model_copy(update={"arm": "b.yaml", "against": "a.yaml"})
        return kind_in_words(made.ab(parity=(parity,)), "b.yaml", "a.yaml")

    parity = told(test_split_size=0.2)
    assert (parity.kind, parity.state) == ("numeric", "within precision")
    assert said(parity).startswith("numeric: held-out loss 2.5300 against 2.4300, +0.1000 [")
    assert said(parity).endswith("3 seeds")
    bare = told()
    assert (bare.state, bare.held_out, bare.checks) == ("within precision", {}, ())
    because = "because no rows are held out (`test_split_size`, `eval_dataset_name`); `--parity full` measures it"
    assert said(bare) == f"numeric: held-out loss not measured, {because}"
    assert said(bare.model_copy(update={"why_not_checked": f"{bare.why_not_checked}."})) == said(bare)
    assert said(bare.model_copy(update={"why_not_checked": ""})) == "numeric"
    apart = Check(gate="P3", quantity="mean gap of the loss", observed=1.0, bound=0.1, ok=False)
    monkeypatch.setattr(_Gate, "_courses", lambda gate: gate.checks.append(apart))
    stopped = told(test_split_size=0.2)
    assert (stopped.state, stopped.held_out) == ("differs", {})


@pytest.mark.long
def test_an_exact_arm_in_full_has_the_same_trajectory(folder: Path, tmp_path: Path) -> None:
    parity = checked(sft(folder, "a"), sft(folder, "b", packed_execution="off"), tmp_path, full=True)
    assert parity.state == "same"
    assert {one.gate for one in parity.checks} == {"P1", "P3"}


def test_a_difference_is_said_in_words() -> None:
    gradient = Check(gate="P1", quantity="gradient", observed=0.5512, bound=1e-4, ok=False)
    assert in_words(gradient) == "gradient differs by 5.5e-1, relative (bound 1e-4)"
    assert short(3e-6) == "3e-6"


@pytest.mark.long
def test_arms_in_processes_of_their_own(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plug = [
        "from tests.bench.parity.planted import BUGS, planted",
        f"kept = planted(BUGS[{MEANS!r}])",
        "kept.__enter__()",
    ]
    (tmp_path / "toy_of_parity.py").write_text("\n".join(plug))
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *filter(None, sys.path)]))
    said: list[str] = []
    arms = sft(folder, "a"), sft(folder, "b", packed_execution="off")
    assert check(*arms, tmp_path / "same", say=said.append).state == "same"
    assert "P1" in said[0]
    with planted(BUGS[MEANS]):
        one, two = sft(folder, "a"), sft(folder, "b", **ON)
        with Processes(one, two, ["toy_of_parity"]) as ask:
            parity = check(one, two, tmp_path / "other", say=said.append, ask=ask)
            assert list(ask.running) == ["both"]
    assert (parity.state, parity.why_not_checked) == ("differs", "")


@pytest.mark.parametrize("settings", [{"full_determinism": True}, {"env": {"OMP_NUM_THREADS": "1"}}])
def test_what_stays_in_a_process_is_not_shared(settings: dict[str, Any], folder: Path) -> None:
    assert not share(sft(folder, "a"), sft(folder, "b", **settings))
    assert share(sft(folder, "a"), sft(folder, "b", packed_execution="off"))
