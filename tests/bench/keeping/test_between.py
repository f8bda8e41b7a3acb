"""Promise: two benches of different times are held against each other only where that means something, and a gate fails for
a loss that was measured, not for noise."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.bench.keeping.between import Outcome, changes, gate, limit
from dynotune.bench.showing.grids import arms
from dynotune.cli import run
from dynotune.errors import ConfigError, DataError
from dynotune.measure.words import DEFINITIONS
from dynotune.results.history import write_result
from dynotune.results.result import Noise, Result
from tests.bench import made

QUIET = Noise(log_ratios=(0.0, 0.0), floor=0.001)


def faster(factor: float, noise: float = 0.002, seed: int = 1, result: Result | None = None) -> Result:
    """`made.ab()` run again, every block `factor` times as fast, give or take."""
    result = result or made.ab(noise=QUIET)
    draws = np.random.default_rng(seed)
    arms = []
    for arm in result.arms:
        blocks = [
            block.model_copy(
                update={"seconds": block.seconds / factor * float(np.exp(noise * draws.standard_normal()))}
            )
            for block in arm.blocks
        ]
        arms.append(arm.model_copy(update={"blocks": tuple(blocks)}))
    return result.model_copy(update={"arms": tuple(arms), "name": "2026-11-23-080000-ab"})


BASE = made.ab(noise=QUIET)


@pytest.mark.parametrize("factor", [0.9, 0.96, 1.0, 1.05, 2.0])
def test_a_change_is_found_with_its_size(factor: float) -> None:
    for change in changes(BASE, faster(factor)):
        assert change.ratio is not None
        assert change.paired
        assert change.ratio.low <= factor <= change.ratio.high
        assert change.ratio.high - change.ratio.low < 0.012 * factor


def test_other_documents_are_not_paired_and_cost_width() -> None:
    shifted = tuple(
        arm.model_copy(
            update={"blocks": tuple(b.model_copy(update={"first_step": b.first_step + 1}) for b in arm.blocks)}
        )
        for arm in BASE.arms
    )
    for change in changes(BASE, BASE.model_copy(update={"arms": shifted})):
        assert not change.paired
        assert change.ratio is not None
        assert change.ratio.high - change.ratio.low > 0.005


def once(result: Result, told: bool) -> Result:
    """Every arm computes 0.7 of its documents' tokens. told: whether these stand beside them, as they do today."""
    arms = []
    for arm in result.arms:
        blocks = [
            block.model_copy(
                update={
                    "real_tokens": int(0.7 * block.real_tokens),
                    "sequence_tokens": block.real_tokens if told else 0,
                }
            )
            for block in arm.blocks
        ]
        arms.append(arm.model_copy(update={"blocks": tuple(blocks)}))
    return result.model_copy(update={"arms": tuple(arms)})


@pytest.mark.parametrize("old_tells", [True, False])
def test_a_result_of_before_is_held_against_a_new_one_by_the_same_count(old_tells: bool) -> None:
    """By documents on one side and computed tokens on the other, an arm that is 23 % slower was 10 % faster."""
    for change in changes(once(BASE, old_tells), once(faster(0.77), told=True)):
        assert change.ratio is not None
        assert change.paired
        assert change.ratio.low <= 0.77 <= change.ratio.high


def test_rates_are_a_device() -> None:
    """Twice the devices and the same rate in all is half the speed of one."""
    for change in changes(BASE, BASE.model_copy(update={"devices": 2})):
        assert change.ratio is not None
        assert change.ratio.estimate == pytest.approx(0.5)


def test_each_arm_counts_its_own_devices() -> None:
    """Control: the arm that says nothing has as many as the result."""
    first, other = BASE.arms
    twice = BASE.model_copy(update={"arms": (first, other.model_copy(update={"devices": 2}))})
    assert [twice.devices_of(arm) for arm in twice.arms] == [1, 2]
    ratios = [change.ratio for change in changes(BASE, twice)]
    assert [ratio and ratio.estimate for ratio in ratios] == [pytest.approx(1.0), pytest.approx(0.5)]
    column = arms(BASE).head.index("tok/s/device")
    one, half = (row[column].text for row in arms(twice).rows)
    alone, whole = (row[column].text for row in arms(BASE).rows)
    assert one == alone
    assert int(half.replace(",", "")) == pytest.approx(int(whole.replace(",", "")) / 2, abs=1)


@pytest.mark.parametrize(
    ("factor", "noise", "outcome"),
    [
        (1.0, 0.002, Outcome.FINE),
        (1.2, 0.002, Outcome.FINE),
        (0.98, 0.002, Outcome.FINE),
        (0.95, 0.002, Outcome.REGRESSION),
        (0.5, 0.002, Outcome.REGRESSION),
        (1.0, 0.2, Outcome.UNRESOLVED),
    ],
)
def test_a_gate_fails_for_what_was_measured(factor: float, noise: float, outcome: Outcome) -> None:
    assert {one.outcome for one in gate(BASE, faster(factor, noise), 0.03)} == {outcome}


@pytest.mark.parametrize("which", ["old", "new"])
@pytest.mark.parametrize("factor", [0.5, 0.9, 1.0])
def test_without_a_noise_floor_a_gate_passes_nothing_and_shows_no_loss(which: str, factor: float) -> None:
    """Of either bench, and it says of which and why. Controls: with both floors it is judged; an arm that no longer runs is
    lost however much noise there is."""
    why = "no noise floor: the budget ended the bench first"
    bare = {"noise": None, "noise_caveat": why}
    old, new = BASE, faster(factor)
    assert {one.outcome for one in gate(old, new, 0.03)} == {Outcome.FINE if factor == 1 else Outcome.REGRESSION}
    old, new = (old.model_copy(update=bare), new) if which == "old" else (old, new.model_copy(update=bare))
    for judged in gate(old, new, 0.03):
        assert judged.outcome is Outcome.NOT_COMPARABLE
        assert judged.text.endswith(f"is shown: {why} in {(old if which == 'old' else new).name}")
    broken = BASE.model_copy(update={**bare, "arms": (BASE.arms[0], made.out_of_memory("b.yaml"))})
    assert [one.outcome for one in gate(BASE, broken, 0.03)] == [Outcome.NOT_COMPARABLE, Outcome.REGRESSION]


def test_an_arm_that_was_lost_is_a_regression_and_one_that_changed_is_not_comparable() -> None:
    broken = BASE.model_copy(update={"arms": (BASE.arms[0], made.out_of_memory("b.yaml"))})
    assert [one.outcome for one in gate(BASE, broken, 0.03)] == [Outcome.FINE, Outcome.REGRESSION]
    gone = BASE.model_copy(update={"arms": BASE.arms[:1]})
    assert gate(BASE, gone, 0.03)[1].outcome is Outcome.NOT_COMPARABLE
    other = made.not_comparable(noise=QUIET)
    assert gate(BASE, other, 0.03)[1].outcome is Outcome.NOT_COMPARABLE
    assert "label tokens" in gate(BASE, other, 0.03)[1].text
    for change in (
        {"machine": {**made.MACHINE, "device": "NVIDIA A100"}},
        {"devices": 8},
        {"operating_point": "Qwen2.5-0.5B"},
    ):
        [judged] = gate(BASE, BASE.model_copy(update=change), 0.03)
        assert judged.outcome is Outcome.NOT_COMPARABLE
        assert "another" in judged.text
    # Another version of PyTorch is what a gate is for.
    newer = BASE.model_copy(update={"machine": {**made.MACHINE, "torch": "2.13.0"}})
    assert {one.outcome for one in gate(BASE, newer, 0.03)} == {Outcome.FINE}


def test_what_was_cut_off_passes_no_gate_and_is_none() -> None:
    """Control: the same rounds of a bench that came to its end pass."""
    whole, cut = faster(1.0), faster(1.0).model_copy(update={"cut_off": True})
    for old, new in ((BASE, cut), (BASE.model_copy(update={"cut_off": True}), whole)):
        [judged] = gate(old, new, 0.03)
        assert judged.outcome is Outcome.NOT_COMPARABLE
        assert "was cut off" in judged.text
        assert judged.arm == (new if new.cut_off else old).name
    assert {one.outcome for one in gate(BASE, whole, 0.03)} == {Outcome.FINE}


def test_definitions_are_never_mixed_and_withdrawn_results_are_no_baseline() -> None:
    with pytest.raises(DataError, match="different definitions"):
        gate(BASE, BASE.model_copy(update={"definitions": DEFINITIONS + 1}), 0.03)
    with pytest.raises(DataError, match="was withdrawn"):
        gate(made.withdrawn(), BASE, 0.03)


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_noise_alone_fails_no_gate(seed: int) -> None:
    judged = gate(BASE, faster(1.0, 0.01, seed), 0.03)
    assert Outcome.REGRESSION not in {one.outcome for one in judged}


@pytest.mark.parametrize(("text", "share"), [("3%", 0.03), ("3 %", 0.03), ("0.03", 0.03), ("0", 0.0), ("0.5%", 0.005)])
def test_limits(text: str, share: float) -> None:
    assert limit(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["3", "100%", "-1%", "", "%", "nan", "inf", "three", "1e400"])
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(ConfigError, match="Write `3%` or"):
        limit(text)


class TestCommands:
    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.chdir(tmp_path)
        for name, one in {
            "old": BASE,
            "same": faster(1.0),
            "slow": faster(0.9),
            "noisy": faster(1.0, 0.2),
            "other": made.not_comparable(),
            "cut": faster(1.0).model_copy(update={"cut_off": True}),
            "newer": BASE.model_copy(update={"definitions": DEFINITIONS + 1}),
        }.items():
            write_result(one, tmp_path / f"{name}.json")

    @pytest.mark.parametrize(
        ("new", "flags", "code"),
        [
            ("same", [], 0),
            ("slow", [], 3),
            ("slow", ["--max-regression", "20%"], 0),
            ("noisy", [], 0),
            ("noisy", ["--strict"], 3),
            ("other", [], 3),
            ("cut", [], 3),
            ("newer", [], 2),
            ("missing", [], 2),
        ],
    )
    def test_exit_codes_of_a_gate(self, new: str, flags: list[str], code: int) -> None:
        assert run(["bench", "gate", "old.json", f"{new}.json", *flags]) == code

    def test_a_gate_says_what_it_found(self, capsys: pytest.CaptureFixture[str]) -> None:
        run(["bench", "gate", "old.json", "slow.json", "--max_regression", "3%"])
        told = capsys.readouterr().out
        assert "a.yaml: REGRESSION, -10" in told
        assert "failed: a loss of at most 3 % is allowed" in told
        run(["bench", "gate", "old.json", "same.json", "--json"])
        body = json.loads(capsys.readouterr().out)
        assert body["passed"] is True
        assert [one["outcome"] for one in body["arms"]] == ["fine", "fine"]

    def test_compare(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["bench", "compare", "old.json", "slow.json"]) == 0
        told = capsys.readouterr().out
        assert told.count("-10.0 %") == 2
        assert run(["bench", "compare", "old.json", "other.json"]) == 0
        told = capsys.readouterr().out
        assert "not comparable" in told
        assert "15,020" not in told.split("not comparable")[1].splitlines()[0]
        assert run(["bench", "compare", "old.json", "newer.json"]) == 2
        assert "different definitions" in capsys.readouterr().err
        assert run(["bench", "compare", "old.json"]) == 2
        run(["bench", "compare", "old.json", "slow.json", "--json"])
        assert len(json.loads(capsys.readouterr().out)["changes"]) == 2

    @pytest.mark.parametrize("columns", ["80", "140"])
    def test_results_of_one_day_are_told_apart(
        self, columns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Names of benches that differ in the clock alone, and in what was counted behind the same second."""
        monkeypatch.setenv("COLUMNS", columns)
        names = [f"2026-11-26-{clock}-ab-sft-of-llamaforcausallm-{'x' * 40}-e1d2af1" for clock in ("175408", "181515")]
        names.append(f"{names[1]}-2")
        for name in names:
            write_result(made.ab(name=name), tmp_path / f"{name}.json")
        assert run(["bench", "compare", *(f"{name}.json" for name in names)]) == 0
        told = capsys.readouterr().out.splitlines()
        assert [line for line in told if line[:2] in ("1:", "2:", "3:")] == [
            f"{i}: {name}" for i, name in enumerate(names, 1)
        ]
        assert [line.split()[1] for line in told if line.startswith("a.yaml")] == ["1", "2", "3"]

    def test_what_was_cut_off_is_said(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Control: of a bench that came to its end nothing is."""
        for words, code in ((["compare"], 0), (["compare", "--json"], 0), (["gate"], 3), (["gate", "--json"], 3)):
            assert run(["bench", words[0], "old.json", "cut.json", *words[1:]]) == code
            assert "2026-11-23-080000-ab was CUT OFF" in capsys.readouterr().out
            assert run(["bench", words[0], "old.json", "same.json", *words[1:]]) == 0
            assert "CUT OFF" not in capsys.readouterr().out

    def test_other_machines_are_said(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write_result(made.ab(machine={**made.MACHINE, "device": "NVIDIA A100", "driver": "1"}), tmp_path / "a100.json")
        assert run(["bench", "compare", "old.json", "a100.json"]) == 0
        told = capsys.readouterr().out
        assert "another machine or other versions: device NVIDIA H200 and NVIDIA A100, driver 580.95.05 and 1" in told

    def test_withdraw_and_list(self, capsys: pytest.CaptureFixture[str]) -> None:
        from dynotune.results.history import History

        kept, _ = History().keep(made.ab())
        assert run(["bench", "list"]) == 0
        assert "b.yaml trains 1.07x" in capsys.readouterr().out
        assert run(["bench", "withdraw", kept.name, "--why", "counted padding\x1b[2J"]) == 0
        run(["bench", "list"])
        told = capsys.readouterr().out
        assert "WITHDRAWN: counted padding\\x1b[2J" in told
        run(["bench", "list", "--json"])
        assert json.loads(capsys.readouterr().out)["results"][0]["withdrawn"]["why"].startswith("counted")
        assert run(["bench", "gate", kept.name, "old.json"]) == 2
